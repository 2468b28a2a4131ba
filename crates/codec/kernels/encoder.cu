// The kernels that encode chunks, in a module of their own: the driver takes longer to compile it
// than all other kernels together, and only writes need it. scripts/compile-kernels.py compiles it
// to encoder.ptx, which is committed.

#include "deflate.cuh"
#include "deflate_join.cuh"
