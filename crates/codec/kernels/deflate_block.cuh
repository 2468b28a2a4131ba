// Writes the items of a segment as a block, with the code that takes the fewest bits.
#pragma once

#include "deflate_codes.cuh"
#include "deflate_matches.cuh"
#include "deflate_output.cuh"
#include "deflate_runs.cuh"

// The codes of a block.
struct Coding {
    CodeWork work;
    SizeRuns runs;
    u32 buffer[BIT_WORDS];
};

// The shared memory of a warp.
struct DeflateShared {
    u32 frequencies[BLOCK_SYMBOLS];
    u8 lengths[BLOCK_SYMBOLS];
    u16 codes[BLOCK_SYMBOLS];
    // The table is not needed once all matches are found.
    union {
        u16 table[TABLE_ENTRIES];
        Coding coding;
    };
};

PORTABLE u32 fixed_length(u32 symbol) {
    return symbol < 144 ? 8 : symbol < 256 ? 9 : symbol < 280 ? 7 : symbol < LITERAL_SYMBOLS ? 8 : 5;
}

// The bits that the items of a block take with its own code and with the fixed code.
struct BlockBits {
    u32 own;
    u32 fixed;
};

PORTABLE BlockBits bits_of_items(const DeflateShared &shared) {
    BlockBits bits = {0, 0};
    for (u32 symbol = lane(); symbol < BLOCK_SYMBOLS; symbol += WIDTH) {
        u32 extra = 0;
        if (symbol > 264 && symbol < 285) {
            extra = (symbol - 261) / 4;
        } else if (symbol > LITERAL_SYMBOLS + 3) {
            extra = (symbol - LITERAL_SYMBOLS) / 2 - 1;
        }
        u32 times = shared.frequencies[symbol];
        bits.own += times * (shared.lengths[symbol] + extra);
        bits.fixed += times * (fixed_length(symbol) + extra);
    }
    return {sums_over_lanes(bits.own).all, sums_over_lanes(bits.fixed).all};
}

// Builds the codes of a block and of their lengths. Returns the bits that these lengths take.
PORTABLE u32 build_codes(DeflateShared &shared) {
    CodeWork &work = shared.coding.work;
    SizeRuns &runs = shared.coding.runs;
    build_code(
        shared.frequencies, LITERAL_SYMBOLS - 2, LONGEST_BLOCK_CODE, shared.lengths, shared.codes, work
    );
    build_code(
        shared.frequencies + LITERAL_SYMBOLS, DISTANCE_SYMBOLS - 2, LONGEST_BLOCK_CODE,
        shared.lengths + LITERAL_SYMBOLS, shared.codes + LITERAL_SYMBOLS, work
    );
    if (lane() == 0) {
        for (u32 symbol = 0; symbol < SIZE_SYMBOLS; symbol++) {
            runs.frequencies[symbol] = 0;
        }
        list_runs(shared.lengths, runs);
    }
    warp_barrier();
    build_code(runs.frequencies, SIZE_SYMBOLS, LONGEST_SIZE_CODE, runs.lengths, runs.codes, work);
    u32 bits = 0;
    for (u32 symbol = lane(); symbol < SIZE_SYMBOLS; symbol += WIDTH) {
        bits += runs.frequencies[symbol] * (runs.lengths[symbol] + bits_after_run(symbol));
    }
    if (lane() == 0) {
        runs.sizes = SIZE_SYMBOLS;
        while (runs.lengths[size_symbol(runs.sizes - 1)] == 0) {
            runs.sizes--;
        }
    }
    warp_barrier();
    return sums_over_lanes(bits).all + 14 + 3 * runs.sizes;
}

PORTABLE void put_codes(DeflateOutput &output, const SizeRuns &runs) {
    output.put_one((runs.literals - 257) | (runs.distances - 1) << 5 | (runs.sizes - 4) << 10, 14);
    for (u32 first = 0; first < runs.sizes; first += WIDTH) {
        u32 i = first + lane();
        bool is_one = i < runs.sizes;
        output.put(is_one ? runs.lengths[size_symbol(i)] : 0, is_one ? 3 : 0);
    }
    for (u32 first = 0; first < runs.count; first += WIDTH) {
        u32 i = first + lane();
        u32 bits = 0;
        u32 count = 0;
        if (i < runs.count) {
            u32 symbol = runs.runs[i] & 31;
            count = runs.lengths[symbol];
            bits = runs.codes[symbol] | u32{runs.runs[i]} >> 5 << count;
            count += bits_after_run(symbol);
        }
        output.put(bits, count);
    }
}

PORTABLE void put_items(DeflateOutput &output, u64 items, u32 count, const DeflateShared &shared) {
    // The items of a lane: at most two.
    const auto items_at = [&](u32 i) {
        return i < count ? load<u32>(items + 2ull * i) : 0;
    };
    u32 after = items_at(2 * lane());
    for (u32 first = 0; first < count; first += 2 * WIDTH) {
        u32 i = first + 2 * lane();
        u32 both = after;
        // Loaded early, while the bits of these items are computed.
        after = items_at(i + 2 * WIDTH);
        u64 bits = 0;
        u32 length = 0;
        for (u32 number = 0; number < 2 && i + number < count; number++) {
            ItemSymbol found = symbol_of_item(both >> (16 * number) & 0xffff);
            u32 code = shared.lengths[found.symbol];
            bits |= (shared.codes[found.symbol] | u64{found.extra} << code) << length;
            length += code + found.extra_bits;
        }
        output.put(bits, length);
    }
    output.put_one(shared.codes[END_OF_BLOCK], shared.lengths[END_OF_BLOCK]);
}

// Copies a segment as a stored block, and returns its size in bytes.
PORTABLE u32 store_segment(const Segment &segment, bool is_last, u64 room) {
    if (lane() == 0) {
        store(room, static_cast<u8>(is_last));
        store(room + 1, static_cast<u8>(segment.length));
        store(room + 2, static_cast<u8>(segment.length >> 8));
        store(room + 3, static_cast<u8>(~segment.length));
        store(room + 4, static_cast<u8>(~segment.length >> 8));
    }
    for (u32 i = lane(); i < segment.length; i += WIDTH) {
        store(room + 5 + i, load<u8>(segment.chunk + segment.begin + i));
    }
    return 5 + segment.length;
}
