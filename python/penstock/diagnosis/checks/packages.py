"""Python packages whose arrays Penstock fills, that decode chunks, or to compare with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.diagnosis.line import Line, Section

_SECTION = Section("Python")


def lines(facts: Mapping[str, Any]) -> Iterator[Line]:
    python = facts["python"]
    yield _SECTION.ok(
        "Python", python["version"], f"NumPy {python['numpy']} holds arrays in host memory."
    )
    has_gpu = bool(facts["cuda"]["devices"])
    yield from _arrays(python, has_gpu)
    yield _nvcomp(facts)
    for name, use in (
        ("deepspeed", "penstock bench can compare with its DeepNVMe."),
        ("kvikio", "penstock bench can compare with it."),
    ):
        yield _SECTION.ok(name, python[name] or "not installed", use if python[name] else "")


def _arrays(python: Mapping[str, Any], has_gpu: bool) -> Iterator[Line]:
    torch = python["torch"]
    if torch and torch.endswith("+cpu") and has_gpu:
        yield _SECTION.warn(
            "torch",
            torch,
            "It is built without CUDA.",
            "Install a build with CUDA, by pip from PyTorch's index for your CUDA version.",
        )
    else:
        yield _SECTION.ok(
            "torch",
            torch or "not installed",
            'device="cuda" returns torch tensors.' if torch else "",
        )
    cupy = python["cupy"]
    if torch:
        meaning = ""
    elif cupy:
        meaning = 'device="cuda" returns CuPy arrays.'
    else:
        meaning = 'device="cuda" returns a penstock.DeviceArray, which supports DLPack.'
    yield _SECTION.ok("CuPy", cupy or "not installed", meaning)
    yield _SECTION.ok("JAX", python["jax"] or "not installed")


def _nvcomp(facts: Mapping[str, Any]) -> Line:
    version, library = facts["python"]["nvcomp"], facts["nvcomp"]
    if version or library:
        found = " ".join(filter(None, [version, f"({library})" if library else ""]))
        return _SECTION.ok("nvCOMP", found, 'With decode="gpu", it decodes LZ4 and Zstd.')
    return _SECTION.ok(
        "nvCOMP",
        "not in a wheel",
        'For decode="gpu" of LZ4 and Zstd: pip install nvidia-libnvcomp-cu13, or -cu12.',
    )
