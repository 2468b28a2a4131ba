// The symbols of a deflate stream, many decoded at a time.
//
// The end of a code is known only once it is decoded, so a stream is inherently sequential. Here the
// warp decodes a symbol at each of the next bits, as if one began there, which yields the bit where
// the next symbol would begin. Following these jumps from the first bit, four symbols at a time,
// gives each lane one symbol of the true sequence.
#pragma once

#include "inflate_codes.cuh"
#include "inflate_input.cuh"
#include "inflate_output.cuh"

// Bits at which each lane decodes. Their indices, and that of the bit after the last symbol, fit in
// a byte.
constexpr u32 BITS_OF_LANE = 4;
constexpr u32 BITS_OF_WARP = BITS_OF_LANE * WIDTH;

// The most symbols found at a time.
constexpr u32 MOST_SYMBOLS = WIDTH < 32 ? WIDTH : 32;

struct alignas(4 * BITS_OF_LANE) SymbolsOfLane {
    u32 at[BITS_OF_LANE];
};

struct FoundSymbols {
    // This lane's symbol, valid in the first `count` lanes.
    u32 symbol;
    u32 count;
    // Bits that the symbols take.
    u32 bits;
    // Whether the next symbol must be decoded by `inflate_one`.
    bool stopped;
};

// The bit to which `bit` jumps. `jumps` has the target of each bit of a lane as a byte. Bits after
// those of the warp jump to themselves.
PORTABLE u32 follow(u32 jumps, u32 bit) {
    u32 found = byte_of(shuffle(jumps, bit / BITS_OF_LANE), bit % BITS_OF_LANE);
    return bit < BITS_OF_WARP ? found : bit;
}

// Jumps of twice as many symbols.
PORTABLE u32 squared(u32 jumps) {
    u32 twice = 0;
    for (u32 i = 0; i < BITS_OF_LANE; i++) {
        twice |= follow(jumps, byte_of(jumps, i)) << (8 * i);
    }
    return twice;
}

// Decodes a symbol from the tables at each of the bits. `table` is in the warp's shared memory.
PORTABLE FoundSymbols find_symbols(const InflateInput &input, const InflateCodes &codes, SymbolsOfLane *table) {
    const u64 window = input.look(lane() * BITS_OF_LANE);
    SymbolsOfLane found;
    u32 single = 0;
    for (u32 i = 0; i < BITS_OF_LANE; i++) {
        u64 bits = window >> i;
        u32 entry = codes.literals[static_cast<u32>(bits) & ((1u << LITERAL_BITS) - 1)];
        u32 taken = entry & 15;
        u32 extra = extra_of(entry);
        u32 value = value_of(entry);
        u32 length = value + (static_cast<u32>(bits) >> taken & ((1u << extra) - 1));
        taken += extra;
        u32 rest = static_cast<u32>(bits >> taken);
        u32 place = codes.distances[rest & ((1u << DISTANCE_BITS) - 1)];
        u32 place_extra = extra_of(place);
        u32 distance = value_of(place) + (rest >> (place & 15) & ((1u << place_extra) - 1));
        bool is_match = kind_of(entry) == LENGTH && kind_of(place) == LITERAL;
        bool is_literal = kind_of(entry) == LITERAL;
        // A bit that begins neither jumps to itself.
        taken = is_match ? taken + (place & 15) + place_extra : is_literal ? taken : 0;
        found.at[i] = is_match ? match_of(length, distance) : value;
        single |= (lane() * BITS_OF_LANE + i + taken) << (8 * i);
    }
    table[lane()] = found;
    const u32 two = squared(single);
    const u32 four = squared(two);
    u32 bit = 0;
    u32 place = 0;
    for (u32 number = 0; number < MOST_SYMBOLS; number += 4) {
        bit = lane() >= number ? place : bit;
        u32 next = follow(four, place);
        if (next == place) {
            break;
        }
        place = next;
    }
    u32 after = follow(two, bit);
    bit = lane() & 2 ? after : bit;
    after = follow(single, bit);
    bit = lane() & 1 ? after : bit;
    u32 behind = follow(single, bit);
    u32 count = ones(lanes_where(lane() < MOST_SYMBOLS && behind != bit));
    // The lane after the last symbol has stopped at its end.
    u32 bits = count < MOST_SYMBOLS ? shuffle(bit, count) : shuffle(behind, MOST_SYMBOLS - 1);
    warp_barrier();
    u32 mine = bit % BITS_OF_WARP;
    u32 symbol = table[mine / BITS_OF_LANE].at[mine % BITS_OF_LANE];
    warp_barrier();
    return {symbol, count, bits, count < MOST_SYMBOLS && bits < BITS_OF_WARP};
}
