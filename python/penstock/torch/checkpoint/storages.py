"""New storages, which a file is about to fill."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import torch

_LARGE = 4 << 20
"""Host memory from this many bytes on is worth large pages."""

_madvise = ctypes.CDLL(None, use_errno=True).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def new_storage(nbytes: int, device: Any) -> Any:
    """Return a storage with undefined contents.

    In host memory, a large one asks for large pages: most of the time of a read into new memory is
    that of its page faults.
    """
    storage = torch.UntypedStorage(nbytes, device=device)
    if nbytes >= _LARGE and storage.device.type == "cpu":
        start = -(-storage.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        length = storage.data_ptr() + nbytes - start
        _madvise(start, length, mmap.MADV_HUGEPAGE)  # a failure costs time only
    return storage
