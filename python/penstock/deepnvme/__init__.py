"""The interface of DeepNVMe, DeepSpeed's library for tensors in files, on Penstock's engine.

Programs for DeepSpeed need only a different import:

>>> from penstock.deepnvme import AsyncIOBuilder        # was: deepspeed.ops.op_builder
>>> handle = AsyncIOBuilder().load().aio_handle(intra_op_parallelism=8)
>>> handle.sync_pread(tensor, "w.bin")
1
>>> from penstock.deepnvme import FastFileWriter, FastFileWriterConfig      # was: deepspeed.io
"""

from penstock.deepnvme.aio import aio_handle, aio_read, aio_write, deepspeed_memcpy
from penstock.deepnvme.builders import AsyncIOBuilder, GDSBuilder, PinMemoryBuilder
from penstock.deepnvme.fast_file_writer import FastFileWriter, FastFileWriterConfig
from penstock.deepnvme.file_writers import MockFileWriter, PyFileWriter
from penstock.deepnvme.gds import gds_handle
from penstock.deepnvme.pinned import pin_handle

__all__ = [
    "AsyncIOBuilder",
    "FastFileWriter",
    "FastFileWriterConfig",
    "GDSBuilder",
    "MockFileWriter",
    "PinMemoryBuilder",
    "PyFileWriter",
    "aio_handle",
    "aio_read",
    "aio_write",
    "deepspeed_memcpy",
    "gds_handle",
    "pin_handle",
]
