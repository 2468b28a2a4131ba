"""Tables of HDF5 files, read by column."""
