// Types, memory access and warp functions of all kernels.
//
// The kernels are compiled twice: by NVRTC for GPUs, and by a C++ compiler for the stand-in driver
// of the tests, which replaces these definitions in `host.h`. So a thread may depend on other
// threads of its launch only through `add` and within a warp of `WIDTH` lanes, which is 1 in the
// stand-in unless CUDASIM_LANES is 32. All memory but `__shared__` is accessed by these functions, with addresses aligned to
// the size of the type.
#pragma once

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

// The widest unit that one instruction moves.
struct alignas(16) Wide {
    u64 low;
    u64 high;
};

#ifdef __CUDACC__

#define PORTABLE __device__ __forceinline__
// For large functions that are called in several places.
#define OUT_OF_LINE __device__ __noinline__

template <class T> PORTABLE T load(u64 address) {
    return *reinterpret_cast<const T *>(address);
}

template <class T> PORTABLE void store(u64 address, T value) {
    *reinterpret_cast<T *>(address) = value;
}

PORTABLE void add(u64 address, u64 value) {
    atomicAdd(reinterpret_cast<u64 *>(address), value);
}

// Adds to a number in shared memory, which other lanes may add to at the same time.
PORTABLE void add_shared(u32 &sum, u32 value) {
    atomicAdd(&sum, value);
}

PORTABLE i32 leading_zeros(u64 value) {
    return __clzll(static_cast<i64>(value));
}

PORTABLE u32 trailing_zeros(u64 value) {
    return static_cast<u32>(__clzll(static_cast<i64>(__brevll(value))));
}

// The bits in reverse order.
PORTABLE u32 reversed(u32 value) {
    return __brev(value);
}

// Byte `number`, 0 to 3, where byte 0 is the least significant.
PORTABLE u32 byte_of(u32 value, u32 number) {
    return __byte_perm(value, 0, number | 0x4440);
}

PORTABLE float as_float(u32 bits) {
    return __uint_as_float(bits);
}

PORTABLE double as_double(u64 bits) {
    return __longlong_as_double(static_cast<i64>(bits));
}

PORTABLE u32 bits_of(float value) {
    return __float_as_uint(value);
}

PORTABLE u64 bits_of(double value) {
    return static_cast<u64>(__double_as_longlong(value));
}

// Products and sums that the compiler does not fuse.
PORTABLE float times(float one, float other) {
    return __fmul_rn(one, other);
}

PORTABLE double times(double one, double other) {
    return __dmul_rn(one, other);
}

PORTABLE float plus(float one, float other) {
    return __fadd_rn(one, other);
}

PORTABLE double plus(double one, double other) {
    return __dadd_rn(one, other);
}

// Lanes of a warp. All of them must call the functions that exchange values, and the barrier, after
// which each lane sees the stores of all other lanes.
constexpr u32 WIDTH = 32;

PORTABLE u32 lane() {
    return threadIdx.x % WIDTH;
}

PORTABLE void warp_barrier() {
    __syncwarp();
}

// The value of lane `from`, modulo `WIDTH`.
PORTABLE u32 shuffle(u32 value, u32 from) {
    return __shfl_sync(~0u, value, static_cast<i32>(from));
}

// A mask with a bit for each lane.
PORTABLE u32 lanes_where(bool condition) {
    return __ballot_sync(~0u, condition);
}

// A mask of the lanes that have the same value.
PORTABLE u32 lanes_with(u32 value) {
    return __match_any_sync(~0u, value);
}

PORTABLE u32 lanes_up_to_mine() {
    return ~0u >> (31 - lane());
}

PORTABLE u32 ones(u32 value) {
    return __popc(value);
}

#else
#include "host.h"
#endif
