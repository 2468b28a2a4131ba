// What the harnesses of the kernels share: arrays that a launch may access, and input.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

// An array that the launch may access. Each has an allocation of its own.
struct Memory {
    const void *begin;
    size_t size;
    bool writable;
};

u8 find(void *client, u64 address, Window *window) {
    for (const Memory &memory : *static_cast<std::vector<Memory> *>(client)) {
        u64 begin = reinterpret_cast<u64>(memory.begin);
        if (address >= begin && address < begin + memory.size) {
            *window = {begin, begin + memory.size, static_cast<u8 *>(const_cast<void *>(memory.begin)), 0, memory.writable};
            return 1;
        }
    }
    return 0;
}

void fail(const char *why) {
    fprintf(stderr, "%s\n", why);
    exit(1);
}

bool read(std::vector<u8> &bytes) {
    return bytes.empty() || fread(bytes.data(), bytes.size(), 1, stdin) == 1;
}

// Runs a kernel of one block, one warp after the other; an access to any other memory ends the program.
template <class Kernel> void run(std::vector<Memory> &memory, u32 warps, Kernel kernel) {
    Launch launch = {&memory, find, {}, 0};
    current_launch = &launch;
    gridDim = {1, 1, 1};
    blockDim = {warps * 32, 1, 1};
    blockIdx = {0, 0, 0};
    try {
        for (u32 warp = 0; warp < warps; warp++) {
            threadIdx = {warp * 32, 0, 0};
            kernel();
        }
    } catch (const Fault &) {
        fail("the kernel accessed other memory");
    }
}

} // namespace
