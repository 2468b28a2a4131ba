//! HDF5: layouts and selections become plans.
