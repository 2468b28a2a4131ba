"""The entry point by which xarray finds this backend."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from typing import Any, ClassVar

import xarray
from xarray.backends import BackendEntrypoint, CachingFileManager
from xarray.backends.common import datatree_from_dict_with_io_cleanup
from xarray.backends.file_manager import PickleableFileManager
from xarray.backends.store import StoreBackendEntrypoint

from penstock import frameworks
from penstock.errors import InvalidError, UnavailableError
from penstock.placement import HOST, Device, parse_device, place
from penstock.xarray.files import OpenFile
from penstock.xarray.store import Options, Store


class PenstockBackendEntrypoint(BackendEntrypoint):  # type: ignore[misc, unused-ignore]
    """netCDF-4 and other HDF5 files, into the memory of a GPU or of the host.

    ``device`` says where data variables go: ``"cpu"`` for NumPy arrays, ``"cuda"`` or ``"cuda:1"``
    for arrays of CuPy. Coordinates, times and strings are NumPy arrays. ``phony_dims`` says how
    dimensions without a name are numbered, as for the engine ``h5netcdf``: ``"access"`` or
    ``"sort"``. All other arguments are those of :func:`xarray.open_dataset`.

    >>> xr.open_dataset("era5.nc", engine="penstock", device="cuda").t2m.mean("time")
    """

    description = "Open netCDF-4 and HDF5 files into GPU or host memory using Penstock"
    url = "docs/how-to/xarray.md"
    supports_groups = True
    open_dataset_parameters: ClassVar[tuple[str, ...]] = (
        "filename_or_obj",
        "mask_and_scale",
        "decode_times",
        "concat_characters",
        "decode_coords",
        "drop_variables",
        "use_cftime",
        "decode_timedelta",
        "group",
        "device",
        "phony_dims",
    )

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Return false: xarray uses this backend where ``engine="penstock"`` asks for it."""
        return False

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        mask_and_scale: Any = True,
        decode_times: Any = True,
        concat_characters: Any = True,
        decode_coords: Any = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: Any = None,
        decode_timedelta: Any = None,
        group: str | None = None,
        device: Device = None,
        phony_dims: str = "access",
    ) -> xarray.Dataset:
        """Do what :func:`xarray.open_dataset` asks for."""
        options = _options(device, mask_and_scale, decode_coords, drop_variables)
        store = _open(filename_or_obj, group, phony_dims, options)
        return _dataset(
            store,
            mask_and_scale=mask_and_scale,
            decode_times=decode_times,
            concat_characters=concat_characters,
            decode_coords=decode_coords,
            drop_variables=options.without,
            use_cftime=use_cftime,
            decode_timedelta=decode_timedelta,
        )

    def open_groups_as_dict(
        self,
        filename_or_obj: Any,
        *,
        mask_and_scale: Any = True,
        decode_times: Any = True,
        concat_characters: Any = True,
        decode_coords: Any = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: Any = None,
        decode_timedelta: Any = None,
        group: str | None = None,
        device: Device = None,
        phony_dims: str = "access",
    ) -> dict[str, xarray.Dataset]:
        """Open a group and all below it; the keys are their paths."""
        options = _options(device, mask_and_scale, decode_coords, drop_variables)
        top = _open(filename_or_obj, group, phony_dims, options)
        try:
            paths = top.paths_below()
        except BaseException:
            top.close()
            raise
        below = "/" + (group or "").strip("/")
        return {
            os.path.relpath(path, below) if group else path: _dataset(
                top.child(path),
                mask_and_scale=mask_and_scale,
                decode_times=decode_times,
                concat_characters=concat_characters,
                decode_coords=decode_coords,
                drop_variables=options.without,
                use_cftime=use_cftime,
                decode_timedelta=decode_timedelta,
            )
            for path in paths
        }

    def open_datatree(self, filename_or_obj: Any, **arguments: Any) -> xarray.DataTree:
        """Do what :func:`xarray.open_datatree` asks for."""
        groups = self.open_groups_as_dict(filename_or_obj, **arguments)
        return datatree_from_dict_with_io_cleanup(groups)


def _options(
    device: Device,
    mask_and_scale: Any,
    decode_coords: Any,
    drop_variables: str | Iterable[str] | None,
) -> Options:
    names = [drop_variables] if isinstance(drop_variables, str) else drop_variables or ()
    return Options(_placement(device), mask_and_scale, decode_coords, frozenset(names))


def _placement(device: Device) -> Device:
    """Return where data variables go; ``None`` for the host.

    Raises:
        UnavailableError: They are to be on a GPU, and CuPy is missing.
    """
    if parse_device(device) == HOST:
        return None
    if frameworks.with_gpu("cupy") is None:
        raise UnavailableError(
            f"device={device!r} needs CuPy, which is not installed or finds no GPU: xarray takes "
            "no other arrays of a GPU",
            remedy='install cupy-cuda12x or cupy-cuda13x, or open the file with device="cpu"',
        )
    return place(device, "cupy", pin=False)


def _open(source: Any, group: str | None, phony_dims: str, options: Options) -> Store:
    if phony_dims not in ("access", "sort"):
        raise InvalidError(f'phony_dims={phony_dims!r} is neither "access" nor "sort"')
    if group is not None and not isinstance(group, str):
        raise InvalidError(f"group must be a string or None, not {group!r}")
    arguments = {"phony_dims": phony_dims}
    if isinstance(source, (bytes, memoryview)):
        source = io.BytesIO(source)
    if not isinstance(source, (str, os.PathLike)):
        unnamed = PickleableFileManager(OpenFile, source, mode="r", kwargs=arguments)
        return Store(unnamed, group, options)
    path = os.fspath(source)
    if "://" in path:
        raise InvalidError(
            f"{path} is not the path of a file",
            remedy="download the file, or open it with another engine",
        )
    path = os.path.abspath(os.path.expanduser(path))
    manager = CachingFileManager(OpenFile, path, mode="r", kwargs=arguments)
    return Store(manager, group, options)


def _dataset(store: Store, **arguments: Any) -> xarray.Dataset:
    try:
        return StoreBackendEntrypoint().open_dataset(store, **arguments)
    except BaseException:
        store.close()
        raise
