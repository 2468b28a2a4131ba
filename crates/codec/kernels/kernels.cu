// All kernels of the library, in one module. kernels.ptx is made from it by
// scripts/compile-kernels.py and committed.

#include "checksum.cuh"
#include "inflate.cuh"
#include "place.cuh"
