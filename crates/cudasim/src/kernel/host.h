// The definitions of memory.cuh for the CPU: every memory access goes through the stand-in, which
// maps device addresses to the bytes that it stores.
#pragma once

#include <cstddef>
#include <cstring>
#include <utility>

#define __global__
#define __launch_bounds__(threads)
// Warps run one after the other.
#define __shared__ static thread_local
#define PORTABLE inline
#define OUT_OF_LINE inline

// Memory that a kernel may access.
struct Window {
    u64 begin;
    u64 end;
    u8 *bytes;
    // Each byte is stored combined with this mask by exclusive or.
    u8 mask;
    u8 writable;
};

// A running launch. `find` finds the window of an address, which stays valid until the launch
// completes.
struct Launch {
    void *client;
    u8 (*find)(void *client, u64 address, Window *window);
    // The last used is the first.
    Window recent[4];
    u32 next;
};

struct Dim3 {
    u32 x;
    u32 y;
    u32 z;
};

// Static, so that the compiler can rely on no other library defining them, and computes their addresses once per function.
static thread_local Dim3 threadIdx, blockIdx, blockDim, gridDim;
static thread_local Launch *current_launch;

// Thrown by a thread on an illegal memory access. The codes are those of the driver.
struct Fault {
    i32 code;
};
constexpr i32 ILLEGAL_ADDRESS = 700;
constexpr i32 MISALIGNED_ADDRESS = 716;

inline bool holds(const Window &window, u64 address, u64 size) {
    const u64 offset = address - window.begin;
    return address >= window.begin && address < window.end && window.end - window.begin - offset >= size;
}

// Finds the window of an address that the last access did not use.
[[gnu::noinline]] inline void find_window(Launch &launch, u64 address) {
    for (Window &window : launch.recent) {
        if (address >= window.begin && address < window.end) {
            std::swap(window, launch.recent[0]);
            return;
        }
    }
    Window window = {};
    if (!launch.find(launch.client, address, &window)) {
        throw Fault{ILLEGAL_ADDRESS};
    }
    std::swap(launch.recent[0], launch.recent[1 + launch.next++ % 3]);
    launch.recent[0] = window;
}

inline const Window &window_of(u64 address, u64 size, bool writing) {
    Launch &launch = *current_launch;
    const Window &window = launch.recent[0];
    if (!holds(window, address, size)) {
        find_window(launch, address);
        if (!holds(window, address, size)) {
            throw Fault{ILLEGAL_ADDRESS};
        }
    }
    if (writing && !window.writable) {
        throw Fault{ILLEGAL_ADDRESS};
    }
    return window;
}

template <class T> inline void combine(T &value, u8 mask) {
    if constexpr (sizeof(T) <= sizeof(u64)) {
        u64 bytes = 0;
        memcpy(&bytes, &value, sizeof(T));
        bytes ^= mask * 0x0101010101010101u;
        memcpy(&value, &bytes, sizeof(T));
    } else if (mask) {
        u8 bytes[sizeof(T)];
        memcpy(bytes, &value, sizeof(T));
        for (u8 &byte : bytes) {
            byte ^= mask;
        }
        memcpy(&value, bytes, sizeof(T));
    }
}

template <class T> inline T load(u64 address) {
    if (address % alignof(T)) {
        throw Fault{MISALIGNED_ADDRESS};
    }
    const Window &window = window_of(address, sizeof(T), false);
    T value;
    memcpy(&value, window.bytes + (address - window.begin), sizeof(T));
    combine(value, window.mask);
    return value;
}

template <class T> inline void store(u64 address, T value) {
    if (address % alignof(T)) {
        throw Fault{MISALIGNED_ADDRESS};
    }
    const Window &window = window_of(address, sizeof(T), true);
    combine(value, window.mask);
    memcpy(window.bytes + (address - window.begin), &value, sizeof(T));
}

// Atomic, since concurrent launches may add to the same number.
inline void add(u64 address, u64 value) {
    if (address % alignof(u64)) {
        throw Fault{MISALIGNED_ADDRESS};
    }
    const Window &window = window_of(address, sizeof(u64), true);
    u64 *word = reinterpret_cast<u64 *>(window.bytes + (address - window.begin));
    u64 before = __atomic_load_n(word, __ATOMIC_RELAXED);
    u64 after;
    do {
        after = before;
        combine(after, window.mask);
        after += value;
        combine(after, window.mask);
    } while (!__atomic_compare_exchange_n(word, &before, after, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

inline void add_shared(u32 &sum, u32 value) {
    sum += value;
}

inline i32 leading_zeros(u64 value) {
    return value ? __builtin_clzll(value) : 64;
}

inline u32 trailing_zeros(u64 value) {
    return value ? static_cast<u32>(__builtin_ctzll(value)) : 64;
}

inline u32 reversed(u32 value) {
    u32 result = 0;
    for (u32 i = 0; i < 32; i++) {
        result |= (value >> i & 1) << (31 - i);
    }
    return result;
}

inline u32 byte_of(u32 value, u32 number) {
    return value >> (8 * number) & 0xff;
}

inline u32 ones(u32 value) {
    return static_cast<u32>(__builtin_popcount(value));
}

template <class To, class From> inline To same_bits(From value) {
    static_assert(sizeof(To) == sizeof(From));
    To result;
    memcpy(&result, &value, sizeof(To));
    return result;
}

inline float as_float(u32 bits) {
    return same_bits<float>(bits);
}

inline double as_double(u64 bits) {
    return same_bits<double>(bits);
}

inline u32 bits_of(float value) {
    return same_bits<u32>(value);
}

inline u64 bits_of(double value) {
    return same_bits<u64>(value);
}

// build.rs forbids the compiler to fuse them.
template <class T> inline T times(T one, T other) {
    return one * other;
}

template <class T> inline T plus(T one, T other) {
    return one + other;
}

#ifdef CUDASIM_WARP
#include "warp.h"
#else
#include "one_lane.h"
#endif
