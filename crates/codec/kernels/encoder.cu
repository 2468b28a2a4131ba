// The kernels that encode chunks, in a module of their own: to compile it takes the driver longer than
// all others together, and only writes need it. scripts/compile-kernels.py compiles it to encoder.ptx,
// which is committed.

#include "deflate.cuh"
#include "deflate_join.cuh"
