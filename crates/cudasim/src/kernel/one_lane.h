// A warp of one lane, which never waits: the fastest way to run a kernel on the CPU.
#pragma once

constexpr u32 WIDTH = 1;

inline u32 lane() {
    return 0;
}

inline void warp_barrier() {}

inline u32 shuffle(u32 value, u32) {
    return value;
}

inline u32 lanes_where(bool condition) {
    return condition;
}

inline u32 lanes_with(u32) {
    return 1;
}

inline u32 lanes_up_to_mine() {
    return 1;
}

// Calls `run` for each thread of a block.
template <class Run> void run_threads(const Dim3 &block, const Run &run) {
    for (threadIdx.z = 0; threadIdx.z < block.z; threadIdx.z++)
        for (threadIdx.y = 0; threadIdx.y < block.y; threadIdx.y++)
            for (threadIdx.x = 0; threadIdx.x < block.x; threadIdx.x++)
                run();
}
