// The kernels for reads, and for moves in either direction, in one module. scripts/compile-kernels.py
// compiles it to kernels.ptx, which is committed.

#include "checksum.cuh"
#include "inflate.cuh"
#include "place.cuh"
