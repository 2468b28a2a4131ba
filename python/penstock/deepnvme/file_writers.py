"""DeepSpeed's file objects for ``torch.save``: their base class, and the simple ones."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from penstock.deepnvme.storages import bytes_of
from penstock.errors import InvalidError

NO_DESCRIPTOR = -1
_GIB = 1 << 30


class BaseFileWriter:
    """A file object that keeps statistics."""

    def __init__(self, file_path: Any) -> None:
        self._file_path = file_path
        self._stats: dict[str, Any] = {
            "close": 0,
            "fileno": 0,
            "flush": 0,
            "write": 0,
            "bytes": 0,
            "write_secs": 0.0,
        }

    def file_path(self) -> Any:
        """Return the path as it was given."""
        return self._file_path

    def fileno(self) -> int:
        """Return -1: no other writer may use the file."""
        self._stats["fileno"] += 1
        return NO_DESCRIPTOR

    def statistics(self) -> dict[str, Any]:
        """Return calls, bytes, seconds and GiB/s so far, under DeepSpeed's names."""
        return {
            **self._stats,
            "write_GB/s": rate(self._stats["bytes"], self._stats["write_secs"]),
            "path": self._file_path,
        }

    def _dump_state(self) -> None:
        """Print the statistics. DeepSpeed's programs call this name."""
        print(f"stats = {self.statistics()}")


def rate(nbytes: int, seconds: float) -> float:
    """Return GiB/s; 0.0 if no time was measured."""
    return nbytes / seconds / _GIB if seconds > 0 else 0.0


class PyFileWriter(BaseFileWriter):
    """A file that Python writes, for comparison."""

    def __init__(self, file_path: Any) -> None:
        super().__init__(file_path)
        self._file = open(file_path, "wb")  # noqa: SIM115 - it is closed by close

    def write(self, buffer: Any) -> int:
        """Write bytes, and return their number."""
        start = perf_counter()
        count = self._file.write(buffer)
        self._stats["write_secs"] += perf_counter() - start
        self._stats["write"] += 1
        self._stats["bytes"] += count
        return count

    def flush(self) -> None:
        """Flush Python's buffer to the system."""
        self._stats["flush"] += 1
        self._file.flush()

    def close(self) -> None:
        """Close the file. Closing again does nothing."""
        self._stats["close"] += 1
        self._file.close()


class MockFileWriter(BaseFileWriter):
    """An empty file that only counts writes, to time everything but the file."""

    def __init__(self, file_path: Any) -> None:
        super().__init__(file_path)
        self._closed = False
        self._stats |= {"save_storage": 0, "save_storage_bytes": 0}
        with open(file_path, "wb"):
            pass

    def write(self, buffer: Any) -> int:
        """Count bytes, and return their number."""
        if self._closed:
            raise InvalidError("the file is closed")
        count = memoryview(buffer).nbytes
        self._count(count)
        return count

    def save_torch_storage_object_list(self, storage_obj_list: Any, save_size: bool) -> int:
        """Count the bytes of storages, and return their number."""
        total = sum(view.nbytes for view in bytes_of(storage_obj_list, save_size))
        self._stats["save_storage"] += len(storage_obj_list)
        self._stats["save_storage_bytes"] += total
        self._count(total)
        return total

    def flush(self) -> None:
        """Count the call."""
        self._stats["flush"] += 1

    def close(self) -> None:
        """Refuse further writes."""
        self._stats["close"] += 1
        self._closed = True

    def _count(self, nbytes: int) -> None:
        self._stats["write"] += 1
        self._stats["bytes"] += nbytes
