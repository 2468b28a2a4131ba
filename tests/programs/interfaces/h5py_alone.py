"""h5py without Penstock: whether the programs and their model are right themselves."""

from __future__ import annotations

from .base import Interface, ReadRequest, Transfer, TransferRequest


class H5pyAlone(Interface):
    penstock = False
    settles = frozenset({"plain", "close", "flush", "resize", "delete"})
    new_arrays = True
    broadcasts = True
    strided = True
    objects = True

    def read(self, request: ReadRequest) -> Transfer:
        dataset, dtype, memory = request.file[request.name], request.dtype, request.memory
        if dtype is not None:
            dataset = dataset.fields(list(dtype.names)) if dtype.names else dataset.astype(dtype)
        value = dataset[request.picked.argument]
        if memory is None:
            return Transfer(value)
        memory.array[...] = value
        return Transfer(memory.array)

    def write(self, request: TransferRequest) -> Transfer:
        request.file[request.name][request.picked.argument] = request.given_memory.array
        return Transfer()
