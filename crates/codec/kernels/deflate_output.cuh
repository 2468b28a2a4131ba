// Writes the bits of a deflate stream from all lanes of a warp.
#pragma once

#include "deflate_format.cuh"

// The most bits that one lane adds at a time: two distance codes of 15 bits with 13 extra bits.
constexpr u32 MOST_BITS = 56;
constexpr u32 BIT_WORDS = MOST_BITS * WIDTH / 32 + 2;

struct DeflateOutput {
    // A multiple of 4.
    u64 address;
    // Words that are stored.
    u32 words;
    // Bits of the buffer that are taken, below 32 between calls.
    u32 used;
    // In shared memory; every bit that is not taken is 0.
    u32 *buffer;

    PORTABLE DeflateOutput(u64 address, u32 *buffer) : address(address), words(0), used(0), buffer(buffer) {
        clear(0, BIT_WORDS);
    }

    PORTABLE void clear(u32 from, u32 to) {
        warp_barrier();
        for (u32 i = from + lane(); i < to; i += WIDTH) {
            buffer[i] = 0;
        }
        warp_barrier();
    }

    PORTABLE void add_nonzero(u32 word, u32 bits) {
        if (bits != 0) {
            add_shared(buffer[word], bits);
        }
    }

    // Adds the lowest `count` bits of each lane, in the order of lanes. The other bits are 0.
    OUT_OF_LINE void put(u64 bits, u32 count) {
        LaneSums sums = sums_over_lanes(count);
        u32 at = used + sums.before;
        u32 shift = at % 32;
        // Up to three words, the first one from this bit on.
        u64 beyond = bits >> (32 - shift);
        add_nonzero(at / 32, static_cast<u32>(bits << shift));
        add_nonzero(at / 32 + 1, static_cast<u32>(beyond));
        add_nonzero(at / 32 + 2, static_cast<u32>(beyond >> 32));
        warp_barrier();
        u32 full = (used + sums.all) / 32;
        used = (used + sums.all) % 32;
        if (full == 0) {
            return;
        }
        for (u32 i = lane(); i < full; i += WIDTH) {
            store(address + 4ull * (words + i), buffer[i]);
        }
        u32 rest = buffer[full];
        clear(0, full + 1);
        if (lane() == 0) {
            buffer[0] = rest;
        }
        warp_barrier();
        words += full;
    }

    // Adds bits of the first lane.
    PORTABLE void put_one(u32 bits, u32 count) {
        put(lane() == 0 ? bits : 0, lane() == 0 ? count : 0);
    }

    // Stores the remaining bits, and returns the size of the stream in bytes.
    PORTABLE u32 finish() {
        if (used > 0 && lane() == 0) {
            store(address + 4ull * words, buffer[0]);
        }
        return 4 * words + (used + 7) / 8;
    }
};
