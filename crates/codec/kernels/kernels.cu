// All kernels of the library, in one module. scripts/compile-kernels.py compiles it to kernels.ptx,
// which is committed.

#include "checksum.cuh"
#include "deflate.cuh"
#include "deflate_join.cuh"
#include "inflate.cuh"
#include "place.cuh"
