"""Queries one HDF5 library: its version, and whether it loads a driver and a connector.

It runs as a program without any package, ``hdf5_probe.py LIBRARY DRIVER CONNECTOR``. It prints a
JSON object after each step, so that a crash does not lose the answers before it.
"""

import ctypes
import json
import os
import re
import sys
from collections.abc import Callable

# The first release whose driver plugins have a class struct with the layout of Penstock's.
_LEAST = (1, 14)


def main(path: str, driver: str, connector: str) -> None:
    try:
        library = ctypes.CDLL(path)
        version = _version(library)
        _tell(version=".".join(map(str, version)), thread_safe=_thread_safe(library))
    except (OSError, AttributeError, RuntimeError) as error:
        _tell(reason=str(error))
        return
    if version < _LEAST:
        least = ".".join(map(str, _LEAST))
        too_old = {"loads": False, "reason": f"plugins need HDF5 {least} or later"}
        _tell(driver=too_old, connector=too_old)
        return
    _tell(driver=_try(lambda: _load_driver(library, driver)))
    _tell(connector=_try(lambda: _load_connector(library, connector)))


def _tell(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def _version(library: ctypes.CDLL) -> tuple[int, ...]:
    numbers = [ctypes.c_uint() for _ in range(3)]
    if library.H5open() < 0 or library.H5get_libversion(*map(ctypes.byref, numbers)) < 0:
        raise RuntimeError("the library does not start")
    return tuple(number.value for number in numbers)


def _thread_safe(library: ctypes.CDLL) -> bool | None:
    # A bool or, in older releases, an int: both fit.
    answer = ctypes.c_uint(0)
    ask = getattr(library, "H5is_library_threadsafe", None)
    if ask is None or ask(ctypes.byref(answer)) < 0:
        return None
    return answer.value != 0


def _load_driver(library: ctypes.CDLL, name: str) -> bool:
    kind = ctypes.c_int64.in_dll(library, "H5P_CLS_FILE_ACCESS_ID_g")
    library.H5Pcreate.restype = ctypes.c_int64
    properties = ctypes.c_int64(library.H5Pcreate(kind))
    return bool(library.H5Pset_driver_by_name(properties, name.encode(), None) >= 0)


def _load_connector(library: ctypes.CDLL, name: str) -> bool:
    register = library.H5VLregister_connector_by_name
    register.restype = ctypes.c_int64
    return bool(register(name.encode(), ctypes.c_int64(0)) >= 0)


def _try(load: Callable[[], bool]) -> dict[str, object]:
    """Return whether a plugin loads, and if not, the cause that HDF5 prints."""
    sys.stderr.flush()
    reading, writing = os.pipe()
    kept = os.dup(2)
    os.dup2(writing, 2)
    reason = None
    try:
        loads = load()
    except (AttributeError, ValueError) as error:  # a function or variable that it does not have
        loads, reason = False, str(error)
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(writing)
    with os.fdopen(reading, errors="replace") as pipe:
        printed = pipe.read()
    if not loads and reason is None:
        # The innermost entry of HDF5's error stack has the cause.
        causes = re.findall(r"^\s*#\d+: .*? in \w+\(\): (.*)$", printed, re.MULTILINE)
        reason = causes[-1] if causes else "HDF5 gives no reason"
    return {"loads": loads, "reason": reason}


if __name__ == "__main__":
    main(*sys.argv[1:4])
