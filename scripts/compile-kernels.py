#!/usr/bin/env python3
"""Compiles crates/codec/kernels/kernels.cu to PTX with NVRTC from its PyPI wheel.

    pip install '.[test]'
    scripts/compile-kernels.py          # writes kernels.ptx
    scripts/compile-kernels.py --check  # only checks that it is up to date

It needs no CUDA toolkit and no GPU. The wheel is pinned in pyproject.toml, because another version
generates other PTX. It is the one of CUDA 12.0, so that every driver since then accepts the result.
"""

import ctypes
import sys
from importlib import metadata
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "crates/codec/kernels"
SOURCE = FOLDER / "kernels.cu"
PTX = FOLDER / "kernels.ptx"
WHEEL = "nvidia-cuda-nvrtc-cu12"
# PTX for Volta runs on Volta and on all later GPUs.
OPTIONS = ["--gpu-architecture=compute_70", "--std=c++17"]


def nvrtc() -> ctypes.CDLL:
    """Load NVRTC from the wheel; raise PackageNotFoundError without it."""
    files = metadata.files(WHEEL) or []
    library = next(f for f in files if f.name.startswith("libnvrtc.so"))
    return ctypes.CDLL(str(library.locate()))


def compiled() -> str:
    """Return the PTX of the sources."""
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
            SOURCE.read_bytes(),
            SOURCE.name.encode(),
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
    ptx = compiled()
    if sys.argv[1:] != ["--check"]:
        PTX.write_text(ptx)
    elif PTX.read_text() != ptx:
        sys.exit(f"{PTX.name} is not up to date: run scripts/compile-kernels.py")


if __name__ == "__main__":
    main()
