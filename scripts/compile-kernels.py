#!/usr/bin/env python3
"""Compiles the modules in crates/codec/kernels to PTX with NVRTC from its PyPI wheel.

    pip install '.[test]'
    scripts/compile-kernels.py          # writes a .ptx beside each .cu
    scripts/compile-kernels.py --check  # only checks that they are up to date

It needs no CUDA toolkit and no GPU. The wheel is pinned in pyproject.toml, because another version
generates other PTX. It is the one of CUDA 12.0, so that every driver since then accepts the result.
"""

import ctypes
import sys
from importlib import metadata
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "crates/codec/kernels"
WHEEL = "nvidia-cuda-nvrtc-cu12"
# PTX for Volta runs on Volta and on all later GPUs.
OPTIONS = ["--gpu-architecture=compute_70", "--std=c++17"]


def nvrtc() -> ctypes.CDLL:
    """Load NVRTC from the wheel; raise PackageNotFoundError without it."""
    files = metadata.files(WHEEL) or []
    library = next(f for f in files if f.name.startswith("libnvrtc.so"))
    return ctypes.CDLL(str(library.locate()))


def compiled(source: Path) -> str:
    """Return the PTX of a module."""
    library = nvrtc()

    def check(status: int) -> None:
        if status:
            library.nvrtcGetErrorString.restype = ctypes.c_char_p
            raise RuntimeError(library.nvrtcGetErrorString(status).decode())

    def text(kind: str) -> str:
        size = ctypes.c_size_t()
        check(getattr(library, f"nvrtcGet{kind}Size")(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        check(getattr(library, f"nvrtcGet{kind}")(program, buffer))
        return buffer.value.decode()

    headers = sorted(FOLDER.glob("*.cuh"))
    program = ctypes.c_void_p()
    check(
        library.nvrtcCreateProgram(
            ctypes.byref(program),
            source.read_bytes(),
            source.name.encode(),
            len(headers),
            (ctypes.c_char_p * len(headers))(*(h.read_bytes() for h in headers)),
            (ctypes.c_char_p * len(headers))(*(h.name.encode() for h in headers)),
        )
    )
    options = (ctypes.c_char_p * len(OPTIONS))(*(o.encode() for o in OPTIONS))
    failed = library.nvrtcCompileProgram(program, len(OPTIONS), options)
    if log := text("ProgramLog"):
        print(log, file=sys.stderr)
    check(failed)
    ptx = text("PTX")
    check(library.nvrtcDestroyProgram(ctypes.byref(program)))
    return without_banner(ptx)


def without_banner(ptx: str) -> str:
    """Remove the lines before `.version`, which name the build of the compiler."""
    return ptx[ptx.index(".version") :].rstrip() + "\n"


def main() -> None:
    for source in sorted(FOLDER.glob("*.cu")):
        ptx = compiled(source)
        target = source.with_suffix(".ptx")
        if sys.argv[1:] != ["--check"]:
            target.write_text(ptx)
        elif not target.exists() or target.read_text() != ptx:
            sys.exit(f"{target.name} is not up to date: run scripts/compile-kernels.py")


if __name__ == "__main__":
    main()
