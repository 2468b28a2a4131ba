// The items between finding matches and writing bits, and the symbols that RFC 1951, section 3.2.5,
// assigns to them.
#pragma once

#include "memory.cuh"

constexpr u32 SHORTEST_MATCH = 3;
constexpr u32 LONGEST_MATCH = 258;
constexpr u32 LARGEST_DISTANCE = 32768;

// The symbols of a block: literals and lengths first, then distances. Two literal symbols and two
// distances exist only in the fixed code.
constexpr u32 LITERAL_SYMBOLS = 288;
constexpr u32 DISTANCE_SYMBOLS = 32;
constexpr u32 BLOCK_SYMBOLS = LITERAL_SYMBOLS + DISTANCE_SYMBOLS;
constexpr u32 END_OF_BLOCK = 256;

// An item is a literal byte, a length or, after it, a distance, in 16 bits: 0 to 255 is a byte, 256
// to 511 a length, and 0x8000 and up a distance.
constexpr u32 FIRST_LENGTH = 256;
constexpr u32 FIRST_DISTANCE = 0x8000;

PORTABLE u32 item_of_length(u32 length) {
    return FIRST_LENGTH + length - SHORTEST_MATCH;
}

PORTABLE u32 item_of_distance(u32 distance) {
    return FIRST_DISTANCE + distance - 1;
}

// The position of the highest bit of a value that is not 0.
PORTABLE u32 highest_bit(u32 value) {
    return 63 - static_cast<u32>(leading_zeros(value));
}

// The symbol of an item, and the bits that follow its code.
struct ItemSymbol {
    u32 symbol;
    u32 extra;
    u32 extra_bits;
};

PORTABLE ItemSymbol symbol_of_length(u32 beyond) {
    if (beyond == LONGEST_MATCH - SHORTEST_MATCH) {
        return {285, 0, 0};
    }
    if (beyond < 8) {
        return {257 + beyond, 0, 0};
    }
    u32 bits = highest_bit(beyond) - 2;
    return {261 + 4 * bits + (beyond >> bits & 3), beyond & ((1u << bits) - 1), bits};
}

PORTABLE ItemSymbol symbol_of_distance(u32 beyond) {
    if (beyond < 4) {
        return {LITERAL_SYMBOLS + beyond, 0, 0};
    }
    u32 bits = highest_bit(beyond) - 1;
    return {LITERAL_SYMBOLS + 2 * bits + (beyond >> bits), beyond & ((1u << bits) - 1), bits};
}

PORTABLE ItemSymbol symbol_of_item(u32 item) {
    if (item < FIRST_LENGTH) {
        return {item, 0, 0};
    }
    if (item < FIRST_DISTANCE) {
        return symbol_of_length(item - FIRST_LENGTH);
    }
    return symbol_of_distance(item - FIRST_DISTANCE);
}

// The sums of a value over the lanes of a warp.
struct LaneSums {
    // Over the lanes before this one.
    u32 before;
    u32 all;
};

PORTABLE LaneSums sums_over_lanes(u32 value) {
    u32 sum = value;
    for (u32 apart = 1; apart < WIDTH; apart *= 2) {
        u32 other = shuffle(sum, lane() - apart);
        sum += lane() >= apart ? other : 0;
    }
    return {sum - value, shuffle(sum, WIDTH - 1)};
}
