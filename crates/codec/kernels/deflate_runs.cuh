// The code lengths of a block as runs (RFC 1951, section 3.2.7).
#pragma once

#include "deflate_format.cuh"
#include "size_order.cuh"

// The symbols of runs: fifteen lengths, no code, and three kinds of repetition.
constexpr u32 SIZE_SYMBOLS = 19;

// The code lengths of a block as they are written: a symbol in the lowest five bits, then the bits
// that follow its code.
struct SizeRuns {
    u16 runs[BLOCK_SYMBOLS];
    u32 frequencies[SIZE_SYMBOLS];
    u8 lengths[SIZE_SYMBOLS];
    u16 codes[SIZE_SYMBOLS];
    u32 count;
    // The numbers of literal symbols, distances and sizes of size codes that are written.
    u32 literals;
    u32 distances;
    u32 sizes;
};

// Lists the code lengths of a block as runs. One lane calls it.
PORTABLE void list_runs(const u8 *lengths, SizeRuns &runs) {
    runs.literals = LITERAL_SYMBOLS - 2;
    while (lengths[runs.literals - 1] == 0) {
        runs.literals--;
    }
    runs.distances = DISTANCE_SYMBOLS - 2;
    while (runs.distances > 1 && lengths[LITERAL_SYMBOLS + runs.distances - 1] == 0) {
        runs.distances--;
    }
    u32 all = runs.literals + runs.distances;
    const auto length_at = [&](u32 i) {
        return lengths[i < runs.literals ? i : LITERAL_SYMBOLS + i - runs.literals];
    };
    u32 count = 0;
    const auto run = [&](u32 symbol, u32 extra) {
        runs.runs[count++] = static_cast<u16>(symbol | extra << 5);
        runs.frequencies[symbol]++;
    };
    for (u32 i = 0; i < all;) {
        u32 length = length_at(i);
        u32 times = 1;
        while (i + times < all && times < 138 && length_at(i + times) == length) {
            times++;
        }
        if (length == 0 && times >= 3) {
            run(times < 11 ? 17 : 18, times < 11 ? times - 3 : times - 11);
            i += times;
            continue;
        }
        run(length, 0);
        i++;
        // The run repeats the length before it.
        while (length != 0 && times > 3) {
            u32 more = times - 1 < 6 ? times - 1 : 6;
            run(16, more - 3);
            i += more;
            times -= more;
        }
    }
    runs.count = count;
}

// How many bits follow the code of a run.
PORTABLE u32 bits_after_run(u32 symbol) {
    return symbol == 16 ? 2 : symbol == 17 ? 3 : symbol == 18 ? 7 : 0;
}
