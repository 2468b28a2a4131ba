"""Tensors of torch, NumPy, CuPy and Penstock in memory that a file has filled.

Each tensor has a storage of its own, which is a part of a shared allocation and keeps it: programs
that look at storages see tensors that share nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from penstock import arrays, dlpack, frameworks, pinned
from penstock._collector import paused_collector
from penstock._core import export_array, import_arrays
from penstock.device_array import DeviceArray
from penstock.dtypes import ElementType, element_type
from penstock.errors import UnavailableError
from penstock.placement import HOST, Placement, allocate, cupy_dtype, parse_device
from penstock.torch.safetensors import dtypes
from penstock.torch.safetensors.errors import WeightsError, WeightsTypeError
from penstock.torch.safetensors.layout import AnyPart

_BYTES = np.dtype(np.uint8)
_BYTE_CODE = (1, 8)
"""DLPack's code and bits of a byte."""
_OTHER_DEVICES = ("mps", "musa", "npu", "xpu", "xla", "mlu", "hpu")
"""Devices that torch fills from host memory."""
_DEVICES = 'use "cpu", "cuda" or "cuda:1"'


class Memory(NamedTuple):
    """An allocation."""

    owner: Any
    """The array of bytes that owns it."""
    address: int
    nbytes: int


Fill: TypeAlias = "Callable[[AnyPart, Any], None]"


class Framework:
    """A library, and the device for its tensors."""

    ordinal: int = HOST
    """The CUDA ordinal of the memory that files fill; ``HOST`` for host memory."""
    maps_files: bool = False
    """Whether a tensor may be a part of the file's mapping, as in the format's own library. What a
    program writes to it is there when the tensor is read again."""

    def allocate(self, nbytes: int, *, pin: bool = False) -> Memory:
        """Return new memory on the device, uninitialised."""
        raise NotImplementedError

    def tensor(self, memory: Memory, place: int, part: AnyPart) -> Any:
        """Return the tensor that begins at a byte of the memory."""
        raise NotImplementedError

    def tensors(self, memory: Memory, places: Sequence[int], parts: Sequence[AnyPart]) -> list[Any]:
        """Return the tensors that begin at some bytes of the memory."""
        return [
            self.finished(self.tensor(memory, place, part))
            for place, part in zip(places, parts, strict=True)
        ]

    def filled(self, part: AnyPart, fill: Fill, *, pin: bool) -> Any:
        """Return a new tensor, whose bytes ``fill`` writes to the array that it gets."""
        memory = self.allocate(part.nbytes, pin=pin)
        fill(part, memory.owner)
        (made,) = self.tensors(memory, (0,), (part,))
        return made

    def of_host(self, memory: Memory, place: int, part: AnyPart) -> Any:
        """Return a tensor in host memory, which :meth:`finished` moves to the device."""
        return _Numpy().tensor(memory, place, part)

    def copied(self, tensor: Any, *, pin: bool) -> Any:
        """Return a copy of a tensor in host memory, in host memory of its own."""
        return np.array(tensor)

    def finished(self, tensor: Any) -> Any:
        """Return a tensor that has been filled, on the device that was asked for."""
        return tensor


def choose(name: str, device: Any) -> Framework:
    """Return the framework of this name.

    Raises:
        WeightsTypeError: There is no such framework, or it has no such device.
        UnavailableError: The GPU is not there.
    """
    if name in ("pt", "torch", "pytorch"):
        return _Torch(device)
    if name in ("np", "numpy"):
        if device not in (None, "cpu"):
            raise WeightsTypeError(f"Device {device} is not supported for framework numpy")
        return _Numpy()
    if name == "cupy":
        return _Cupy(device)
    if name == "device":
        return _Device(device)
    raise WeightsTypeError(
        f"framework {name} is invalid", remedy='use "pt", "np", "cupy" or "device"'
    )


def named_tensors(
    maker: Framework, memory: Memory, places: list[int], parts: Sequence[AnyPart]
) -> dict[str, Any]:
    """Return the tensors of parts of a memory, by name."""
    with paused_collector():
        tensors = maker.tensors(memory, places, parts)
        return dict(zip((part.name for part in parts), tensors, strict=True))


class _Torch(Framework):
    def __init__(self, device: Any) -> None:
        torch = frameworks.torch_module()
        self._torch, self._u8 = torch, torch.uint8
        self.device = _torch_device(torch, device)
        is_gpu = self.device.type == "cuda"
        self.ordinal = self.device.index if is_gpu else HOST
        self.maps_files = not is_gpu
        self._filled_on = self.device if is_gpu else torch.device("cpu")
        self._dlpack_device = (dlpack.CUDA, self.ordinal) if is_gpu else (dlpack.CPU, 0)
        # The private function takes less time.
        public = torch.utils.dlpack.from_dlpack
        self._import = getattr(torch._C, "_from_dlpack", public)
        # A function for C; one that another package has added to this class may have limits.
        has_api = hasattr(torch._C, "_dlpack_exchange_api")
        self._api = torch.Tensor.__dlpack_c_exchange_api__ if has_api else self._import
        self._codes = _torch_codes(torch)
        self._on_host: Framework = _Torch("cpu") if is_gpu else self

    def allocate(self, nbytes: int, *, pin: bool = False) -> Memory:
        torch = self._torch
        _refuse_fakes()
        if pin and self.ordinal != HOST:
            raise WeightsError(f"pin=True is for host memory, and the device is {self.device}")
        if pin and not torch.cuda.is_available():  # torch locks pages by CUDA alone
            return host_memory(pinned.empty((nbytes,), _BYTES))
        owner = torch.empty(nbytes, dtype=self._u8, device=self._filled_on, pin_memory=pin)
        return Memory(owner, frameworks.address(owner), nbytes)

    def tensor(self, memory: Memory, place: int, part: AnyPart) -> Any:
        (made,) = self.tensors(memory, (place,), (part,))
        return made

    def tensors(self, memory: Memory, places: Sequence[int], parts: Sequence[AnyPart]) -> list[Any]:
        _refuse_fakes()
        found = import_arrays(self._api, parts, places, self._codes, memory, self._dlpack_device)
        for number, tensor in enumerate(found):
            if tensor is None:
                found[number] = self._unusual(memory, places[number], parts[number])
        if self._filled_on != self.device:
            return [tensor.to(self.device) for tensor in found]
        return found

    def of_host(self, memory: Memory, place: int, part: AnyPart) -> Any:
        return self._on_host.tensor(memory, place, part)

    def _unusual(self, memory: Memory, place: int, part: AnyPart) -> Any:
        """Return a tensor without elements, a whole allocation, or what DLPack cannot describe."""
        name, dtype, shape = part[:3]
        wanted = dtypes.torch_type(self._torch, dtype)
        if dtype == dtypes.PACKED:
            shape = dtypes.torch_shape(name, dtype, shape)
        elif wanted is None:
            wanted, shape = self._u8, dtypes.shape_of_bytes(name, dtype, shape)
        if not part.nbytes:
            try:
                empty = self._torch.empty(0, dtype=wanted, device=self._filled_on)
                return empty.reshape(shape).detach()
            except (RuntimeError, TypeError, ValueError) as error:
                raise WeightsTypeError(
                    f"tensor {name!r}: torch has none of shape {list(shape)}"
                ) from error
        if part.nbytes == memory.nbytes:
            plain = self._bytes_of(memory)
        else:
            capsule = export_array(
                memory.address + place,
                (part.nbytes,),
                _BYTE_CODE,
                self._dlpack_device,
                memory.owner,
                versioned=False,
                copied=False,
            )
            plain = self._import(capsule)
        # Without detach, autograd would take it for a view of one that others share.
        return plain.view(wanted).view(shape).detach()

    def _bytes_of(self, memory: Memory) -> Any:
        owner = memory.owner
        # Not as_tensor, which would move it to torch's default device.
        return self._torch.from_numpy(owner) if isinstance(owner, np.ndarray) else owner

    def copied(self, tensor: Any, *, pin: bool) -> Any:
        plain = self._bytes_of(self.allocate(tensor.nbytes, pin=pin))
        return plain.view(tensor.dtype).view(tensor.shape).copy_(tensor)

    def finished(self, tensor: Any) -> Any:
        return tensor if tensor.device == self.device else tensor.to(self.device)


def _refuse_fakes() -> None:
    """Raise an error within ``FakeTensorMode``, as safetensors does."""
    if frameworks.makes_fakes():
        raise WeightsError(
            "FakeTensorMode is on, in which tensors have no elements",
            remedy="load the tensors outside of it; safe_open(...).get_slice(name) has types and "
            "shapes",
        )


def _torch_codes(torch: Any) -> dict[str, tuple[int, int]]:
    """Return DLPack's codes of the types that this torch imports."""
    if not _codes:
        probe = np.empty(8, _BYTES)  # a tensor could be fake
        address = probe.__array_interface__["data"][0]
        for dtype in dtypes.NAMES:
            code = dtypes.dlpack_code(dtype)
            if code is None or not hasattr(torch, dtypes.TORCH_NAMES[dtype]):
                continue
            capsule = export_array(
                address, (1,), code, (dlpack.CPU, 0), probe, versioned=False, copied=False
            )
            try:
                imported = torch.utils.dlpack.from_dlpack(capsule)
            except (RuntimeError, BufferError):  # an older torch: it is imported as bytes
                continue
            if imported.dtype == dtypes.torch_type(torch, dtype):
                _codes[dtype] = code
    return _codes


_codes: dict[str, tuple[int, int]] = {}


def _torch_device(torch: Any, device: Any) -> Any:
    """Return a device of torch; ``"cuda"`` is its current GPU.

    Raises:
        WeightsTypeError: It is not a device that torch knows.
        UnavailableError: The device is not there.
    """
    if device is None:
        device = "cpu"
    is_ordinal = isinstance(device, int) and not isinstance(device, bool) and device >= 0
    if not (is_ordinal or isinstance(device, (str, torch.device))):
        raise WeightsTypeError(f"device {device!r} is invalid", remedy=_DEVICES)
    name = str(device).partition(":")[0]
    if not is_ordinal and name not in ("cpu", "cuda", *_OTHER_DEVICES):
        raise WeightsTypeError(f"device {device} is invalid", remedy=_DEVICES)
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise WeightsTypeError(f"device {device} is invalid: {error}") from None
    if found.type == "cpu":
        return found
    if found.type != "cuda":
        try:
            return torch.empty(0, device=found).device
        except (AssertionError, ImportError, RuntimeError) as error:
            raise UnavailableError(
                f"torch cannot use device {device}: {str(error).partition('. ')[0]}",
                remedy='use another device, or "cpu"',
            ) from None
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    index = found.index
    if index is None:
        index = torch.cuda.current_device() if count else 0
    if index >= count:
        raise UnavailableError(
            f"device {device} is not there: torch finds {count} GPUs",
            remedy='use another device, or "cpu"',
        )
    return torch.device("cuda", index)


class _Numpy(Framework):
    def allocate(self, nbytes: int, *, pin: bool = False) -> Memory:
        return host_memory(pinned.empty((nbytes,), _BYTES) if pin else np.empty(nbytes, _BYTES))

    def filled(self, part: AnyPart, fill: Fill, *, pin: bool) -> Any:
        shape, dtype = _described(part)
        made = pinned.empty(shape, dtype) if pin else np.empty(shape, dtype)
        fill(part, made)
        return made

    def tensor(self, memory: Memory, place: int, part: AnyPart) -> Any:
        shape, dtype = _described(part)
        if not part.nbytes:
            return np.empty(shape, dtype)
        # A tensor that does not keep the whole file's array in memory as its base.
        return np.ndarray(shape, dtype, memory.owner.data, place)


class _OnGpu(Framework):
    """A library of GPU memory alone."""

    _library: Any

    def __init__(self, device: Any) -> None:
        ordinal = parse_device("cuda" if device in (None, "cpu") else device)
        self.ordinal = 0 if ordinal is None else ordinal
        if self.ordinal == HOST:
            raise WeightsTypeError(f"device {device} is invalid for framework {self._library}")

    def allocate(self, nbytes: int, *, pin: bool = False) -> Memory:
        where = Placement(self.ordinal, self._library, pin=False)
        owner = allocate((nbytes,), element_type(_BYTES), where)
        return Memory(owner, arrays.view(owner).pointer, nbytes)


class _Device(_OnGpu):
    _library = "device"

    def finished(self, tensor: Any) -> Any:
        if isinstance(tensor, np.ndarray):
            return DeviceArray.from_numpy(tensor, self.ordinal)
        return tensor

    def tensor(self, memory: Memory, place: int, part: AnyPart) -> Any:
        element, shape = _plain(part)
        if not part.nbytes:
            return DeviceArray(shape, element.numpy or element.name, self.ordinal)
        return memory.owner.part(place, shape, element)


class _Cupy(_OnGpu):
    _library = "cupy"

    def finished(self, tensor: Any) -> Any:
        if isinstance(tensor, np.ndarray):
            cupy: Any = frameworks.with_gpu("cupy")
            with cupy.cuda.Device(self.ordinal):
                return cupy.asarray(tensor)
        return tensor

    def tensor(self, memory: Memory, place: int, part: AnyPart) -> Any:
        element, shape = _plain(part)
        cupy: Any = frameworks.with_gpu("cupy")
        try:
            dtype = cupy_dtype(element)
        except TypeError as error:
            raise WeightsTypeError(f"tensor {part.name}: {error}") from None
        with cupy.cuda.Device(self.ordinal):
            if not part.nbytes:
                return cupy.empty(shape, dtype)
            return cupy.ndarray(shape, dtype, memory.owner.data + place)


def host_memory(owner: np.ndarray[Any, Any]) -> Memory:
    """Return the memory of a C-contiguous array of bytes."""
    return Memory(owner, owner.__array_interface__["data"][0], owner.nbytes)


def _described(part: AnyPart) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return NumPy's shape and type of a part."""
    name, dtype, shape = part[:3]
    try:
        found = dtypes.numpy_type(dtype)
    except TypeError as error:
        raise WeightsTypeError(f"tensor {name}: {error}") from None
    return (shape, found) if found else (dtypes.shape_of_bytes(name, dtype, shape), _BYTES)


def _plain(part: AnyPart) -> tuple[ElementType, tuple[int, ...]]:
    """Return element type and shape of a part, or those of its bytes."""
    element = dtypes.element(part.dtype)
    if element is not None:
        return element, part.shape
    return element_type(_BYTES), dtypes.shape_of_bytes(part.name, part.dtype, part.shape)
