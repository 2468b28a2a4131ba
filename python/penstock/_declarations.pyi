"""The C API, as hatch_build.py makes it of the headers."""

from typing import Any

ffi: Any
