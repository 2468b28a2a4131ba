// The symbols of a deflate stream, decoded in parallel.
//
// The end of a code is known only once it is decoded, so a stream is inherently sequential. Here
// the warp finds the length of a symbol at each of the next bits, as if one began there, which
// yields the bit where the next symbol would begin. Following these jumps from the first bit, up to
// four symbols at a time, leads each lane to one symbol of the true sequence, which it decodes.
#pragma once

#include "inflate_codes.cuh"
#include "inflate_input.cuh"
#include "inflate_output.cuh"

// Bits at which each lane looks for a symbol.
constexpr u32 BITS_OF_LANE = 8;
constexpr u32 BITS_OF_WARP = BITS_OF_LANE * WIDTH;

// The most symbols found at a time.
constexpr u32 MOST_SYMBOLS = WIDTH < 32 ? WIDTH : 32;

// The most bits of a symbol in the tables: two codes, and 5 and 13 extra bits.
constexpr u32 SYMBOL_BITS = LITERAL_BITS + 5 + DISTANCE_BITS + 13;
static_assert(4 * SYMBOL_BITS < 256);

// Numbers of bits from each bit of a lane to a later symbol.
struct alignas(BITS_OF_LANE) JumpsOfLane {
    u8 at[BITS_OF_LANE];
};

// Jumps in the shared memory of a warp. Those from the bits after the warp's own are 0.
struct JumpTable {
    JumpsOfLane lanes[WIDTH + (SYMBOL_BITS + BITS_OF_LANE - 1) / BITS_OF_LANE];

    // Must be called once before `of`.
    PORTABLE void prepare() {
        for (u32 i = WIDTH + lane(); i < sizeof(lanes) / sizeof(*lanes); i += WIDTH) {
            lanes[i] = {};
        }
    }
    PORTABLE u32 of(u32 bit) const {
        return lanes[bit / BITS_OF_LANE].at[bit % BITS_OF_LANE];
    }
};

// Jumps over one, two and four symbols.
struct SymbolJumps {
    JumpTable one;
    JumpTable two;
    JumpTable four;

    // Must be called once before the others.
    PORTABLE void prepare() {
        one.prepare();
        two.prepare();
        four.prepare();
        warp_barrier();
    }
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

// Makes jumps of this lane's bits over twice as many symbols.
PORTABLE void lengthen(const JumpTable &jumps, JumpTable &longer, JumpsOfLane &mine) {
    warp_barrier();
    for (u32 i = 0; i < BITS_OF_LANE; i++) {
        mine.at[i] += jumps.of(lane() * BITS_OF_LANE + i + mine.at[i]);
    }
    longer.lanes[lane()] = mine;
}

// Decodes symbols from the tables.
PORTABLE FoundSymbols find_symbols(const InflateInput &input, const InflateCodes &codes, SymbolJumps &jumps) {
    const u64 window = input.look(lane() * BITS_OF_LANE);
    JumpsOfLane mine;
    for (u32 i = 0; i < BITS_OF_LANE; i++) {
        u64 bits = window >> i;
        u32 entry = codes.literals[static_cast<u32>(bits) & ((1u << LITERAL_BITS) - 1)];
        u32 taken = bits_of(entry);
        u32 place = codes.distances[static_cast<u32>(bits >> taken) & ((1u << DISTANCE_BITS) - 1)];
        mine.at[i] = static_cast<u8>(taken + (kind_of(entry) == LENGTH ? bits_of(place) : 0));
    }
    jumps.one.lanes[lane()] = mine;
    lengthen(jumps.one, jumps.two, mine);
    lengthen(jumps.two, jumps.four, mine);
    warp_barrier();
    u32 bit = 0;
    for (u32 symbols = 4; symbols < MOST_SYMBOLS; symbols += 4) {
        bit += lane() >= symbols ? jumps.four.of(bit) : 0;
    }
    bit += lane() & 2 ? jumps.two.of(bit) : 0;
    bit += lane() & 1 ? jumps.one.of(bit) : 0;

    const u64 bits = input.look(bit);
    u32 entry = codes.literals[static_cast<u32>(bits) & ((1u << LITERAL_BITS) - 1)];
    u32 taken = bits_of(entry);
    u32 symbol = value_of(entry, static_cast<u32>(bits));
    bool decoded = kind_of(entry) == LITERAL;
    if (kind_of(entry) == LENGTH) {
        u32 rest = static_cast<u32>(bits >> taken);
        u32 place = codes.distances[rest & ((1u << DISTANCE_BITS) - 1)];
        decoded = kind_of(place) == LITERAL;
        taken += bits_of(place);
        symbol = match_of(symbol, value_of(place, rest));
    }
    // Lanes after a symbol that is not in the tables have followed meaningless jumps.
    u32 valid = lanes_where(decoded && lane() < MOST_SYMBOLS && bit < BITS_OF_WARP);
    u32 count = ones(valid & ~(valid + 1));
    u32 end = shuffle(bit + taken, count > 0 ? count - 1 : 0);
    u32 found = count > 0 ? end : 0;
    warp_barrier();
    return {symbol, count, found, count < MOST_SYMBOLS && found < BITS_OF_WARP};
}
