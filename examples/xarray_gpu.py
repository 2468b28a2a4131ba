"""xarray on the GPU: a mean by season of a packed netCDF-4 variable.

    python examples/xarray_gpu.py [FILE VARIABLE] [--device cpu]

Without a file, it makes one in a temporary folder. Needs penstock[xarray] and netCDF4, and CuPy for
the GPU; without them, the arrays stay in host memory.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import xarray as xr

import penstock as ps


def make(path: Path) -> None:
    """Write two years of daily temperatures, packed as 16-bit integers."""
    days = np.arange("2001-01-01", "2003-01-01", dtype="M8[D]").astype("M8[ns]")
    lat, lon = np.linspace(90, -90, 91), np.arange(0, 360, 2.0)
    season = np.cos(2 * np.pi * np.arange(len(days)) / 365.25)[:, None, None]
    mean = 300 - 40 * np.abs(np.sin(np.radians(lat)))[None, :, None]
    noise = np.random.default_rng(1).normal(0, 2, (len(days), 91, 180))
    data = xr.Dataset(
        {"t2m": (("time", "lat", "lon"), mean - 10 * season + noise, {"units": "K"})},
        coords={"time": days, "lat": lat, "lon": lon},
    )
    packing = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768}
    stored = {"zlib": True, "complevel": 4, "shuffle": True, "chunksizes": (1, 91, 180)}
    data.to_netcdf(path, engine="netcdf4", encoding={"t2m": packing | stored})


def seasons(path: Path, variable: str, **engine: str) -> tuple[xr.DataArray, float, float]:
    """Return the mean by season, and the seconds of the reads and of the computation."""
    means, read, computed = [], 0.0, 0.0
    names = ("DJF", "MAM", "JJA", "SON")
    with xr.open_dataset(path, **engine) as data:
        of_step = data.time.dt.season.values
        for name in names:
            began = time.perf_counter()
            loaded = data[variable].isel(time=np.flatnonzero(of_step == name)).load()
            read += time.perf_counter() - began
            began = time.perf_counter()
            means.append(loaded.mean("time").as_numpy())  # a small copy, which waits for the GPU
            computed += time.perf_counter() - began
    return xr.concat(means, dim=xr.Variable("season", list(names))), read, computed


def chosen(device: str) -> str:
    """Return the device, or the host if there is no GPU that xarray can use."""
    if device == "cpu":
        return device
    try:
        import cupy

        if ps.devices() and cupy.cuda.is_available():
            return device
        why = "there is no GPU"
    except ImportError:
        why = "CuPy is not installed"
    print(f"{why}: the arrays stay in host memory")
    return "cpu"


def main() -> None:
    """Compare Penstock's engine with that of netCDF4."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("variable", nargs="?", default="t2m")
    parser.add_argument("--device", default="cuda")
    words = parser.parse_args()
    device = chosen(words.device)
    with tempfile.TemporaryDirectory() as folder:
        path = words.file
        if path is None:
            path = Path(folder, "t2m.nc")
            make(path)
        seasons(path, words.variable, engine="penstock", device=device)  # starts the libraries
        ours, *times = seasons(path, words.variable, engine="penstock", device=device)
        print(f"penstock, {device}: read {times[0]:.3f} s, mean by season {times[1]:.3f} s")
        theirs, *times = seasons(path, words.variable, engine="netcdf4")
        print(f"netcdf4, cpu: read {times[0]:.3f} s, mean by season {times[1]:.3f} s")
    difference = float(np.nanmax(np.abs(ours.values - theirs.values)))
    print(f"The means are {dict(ours.sizes)}, and differ by at most {difference:.2g}.")


if __name__ == "__main__":
    main()
