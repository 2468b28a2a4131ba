// Runs of literals in a deflate stream, many of which are decoded at a time.
//
// Where a code ends is known only once it is decoded, so a stream has an order. Here a symbol is
// decoded at each of the next bits, as if a code began there, which says where the next one would
// begin; following that from the first bit, in steps of 1, 2, 4, ... codes, gives each lane one code
// of the true order.
#pragma once

#include "inflate_codes.cuh"
#include "inflate_input.cuh"
#include "inflate_output.cuh"

// Bits that each lane looks at.
constexpr u32 BITS_OF_LANE = 4;
constexpr u32 BITS_OF_WARP = BITS_OF_LANE * 32;
// Fewer literals than this are decoded faster one by one.
constexpr u32 LEAST_OF_A_RUN = 6;

// One bit after the other, as bytes: where from it, relative to the first bit of the warp, one comes
// to; from bits behind the last one of the warp, nowhere else.
PORTABLE u32 follow(u32 jumps, u32 bit) {
    u32 found = byte_of(shuffle(jumps, bit / BITS_OF_LANE % 32), bit % BITS_OF_LANE);
    return bit < BITS_OF_WARP ? found : bit;
}

// Decodes literals up to where something else comes, or fewer follow each other.
PORTABLE InflateStatus inflate_run(InflateInput &input, InflateOutput &output, const InflateCodes &codes) {
    // From the beginning of the stretch.
    u32 at = input.next * 32 - input.count;
    u32 count;
    do {
        if (at >= WIDTH * 32) {
            if (input.stretch > input.words) {
                return INFLATE_TRUNCATED;
            }
            input.advance();
            at -= WIDTH * 32;
        }
        u32 mine = at + lane() * BITS_OF_LANE;
        u64 window = u64{input.look(mine / 32 + 1)} << 32 | input.look(mine / 32);
        u32 ready = static_cast<u32>(window >> (mine % 32));
        u32 jumps = 0;
        u32 values = 0;
        for (u32 i = 0; i < BITS_OF_LANE; i++) {
            u32 entry = codes.literals[ready >> i & ((1u << LITERAL_BITS) - 1)];
            // What is no literal leads to itself.
            u32 length = kind_of(entry) == LITERAL ? entry & 15 : 0;
            jumps |= (lane() * BITS_OF_LANE + i + length) << (8 * i);
            values |= (value_of(entry) & 0xff) << (8 * i);
        }
        const u32 single = jumps;
        u32 bit = 0;
        for (u32 step = 1; step < 32; step *= 2) {
            u32 there = follow(jumps, bit);
            bit = lane() & step ? there : bit;
            if (step < 16) {
                u32 twice = 0;
                for (u32 i = 0; i < BITS_OF_LANE; i++) {
                    twice |= follow(jumps, byte_of(jumps, i)) << (8 * i);
                }
                jumps = twice;
            }
        }
        u32 behind = follow(single, bit);
        u32 value = byte_of(shuffle(values, bit / BITS_OF_LANE % 32), bit % BITS_OF_LANE);
        count = lanes_with(behind != bit);
        u32 end = shuffle(behind, (count - 1) % WIDTH);
        at += count == 0 ? 0 : end;
        if (!output.literals(value, count)) {
            return INFLATE_TOO_LONG;
        }
    } while (count >= LEAST_OF_A_RUN);
    input.resume(at);
    return INFLATE_DONE;
}
