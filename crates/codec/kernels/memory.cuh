// Types and memory as every kernel here uses them.
//
// The kernels are compiled twice: by NVRTC for GPUs, and by a C++ compiler for the stand-in driver
// of the tests, which has its own form of what follows in `twin.h`. So no thread may depend on
// another one of its launch, except through `add`, and all memory is reached by these functions,
// with addresses aligned to the size of the type.
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

template <class T> PORTABLE T load(u64 address) {
    return *reinterpret_cast<const T *>(address);
}

template <class T> PORTABLE void store(u64 address, T value) {
    *reinterpret_cast<T *>(address) = value;
}

PORTABLE void add(u64 address, u64 value) {
    atomicAdd(reinterpret_cast<u64 *>(address), value);
}

PORTABLE i32 leading_zeros(u64 value) {
    return __clzll(static_cast<i64>(value));
}

#else
#include "twin.h"
#endif
