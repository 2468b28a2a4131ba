// The order in which the sizes of the size codes are written (RFC 1951, section 3.2.7).
#pragma once

#include "memory.cuh"

// The symbol whose size is written as number `i`, of 19. The two words have five bits for each.
PORTABLE u32 size_symbol(u32 i) {
    constexpr u64 ORDER_LOW = 16ull | 17ull << 5 | 18ull << 10 | 0ull << 15 | 8ull << 20 | 7ull << 25 |
        9ull << 30 | 6ull << 35 | 10ull << 40 | 5ull << 45 | 11ull << 50 | 4ull << 55;
    constexpr u64 ORDER_HIGH =
        12ull | 3ull << 5 | 13ull << 10 | 2ull << 15 | 14ull << 20 | 1ull << 25 | 15ull << 30;
    return static_cast<u32>(i < 12 ? ORDER_LOW >> (5 * i) : ORDER_HIGH >> (5 * (i - 12))) & 31;
}
