"""HDF5 files and their datasets."""
