"""A backend of xarray: ``xarray.open_dataset(path, engine="penstock", device="cuda")``.

``backend`` is the entry point that xarray finds by its name. ``store`` makes xarray's variables of
a ``group``, which has the dimensions of the netCDF-4 data model, with their ``attributes`` and
encoding. ``array`` reads the elements of a variable when xarray needs them, from ``files`` that
xarray's file cache opens and closes; ``indexers`` gives xarray's indexers to NumPy's rules.
"""
