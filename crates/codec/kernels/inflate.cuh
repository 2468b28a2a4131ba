// Raw deflate streams (RFC 1951) decoded, one warp each, any number of them in one launch.
//
// The streams come from files and may be damaged or made to harm. Every access to memory is checked
// against the input or the room of its own stream, every symbol takes at least one bit of an input
// that ends, and whatever is not right becomes a status.
//
// All lanes of a warp decode the same symbols with the same state, so that nothing has to be told
// to others; they share the work of building tables and of moving bytes. What a file says decides
// no address but through the checks in InflateInput and InflateOutput.
#pragma once

#include "inflate_codes.cuh"
#include "inflate_input.cuh"
#include "inflate_output.cuh"
#include "inflate_run.cuh"
#include "memory.cuh"

// The structs have their twins in gpu/inflate.rs.

struct InflateStream {
    // At any alignment, as the output.
    u64 input;
    u64 output;
    u32 length;
    // What the stream is to decode to, no more and no less.
    u32 room;
};
static_assert(sizeof(InflateStream) == 24);

struct InflateVerdict {
    u32 status;
    // Bytes of the output that are decoded.
    u32 written;
};
static_assert(sizeof(InflateVerdict) == 8);

struct InflateLaunch {
    u64 streams;
    u64 verdicts;
    u32 count;
    u32 reserved;
};
static_assert(sizeof(InflateLaunch) == 24);

// Literals one after the other before it is worth to look for many at a time.
constexpr u32 LITERALS_OF_A_RUN = 6;

PORTABLE InflateStatus inflate_stored(InflateInput &input, InflateOutput &output) {
    input.align();
    if (!input.refill()) {
        return INFLATE_TRUNCATED;
    }
    u32 length = input.take(16);
    if (!input.refill()) {
        return INFLATE_TRUNCATED;
    }
    u32 complement = input.take(16);
    if ((length ^ complement) != 0xffff) {
        return INFLATE_BAD_STORED;
    }
    u64 from = input.position() / 8;
    if (from + length > input.end) {
        return INFLATE_TRUNCATED;
    }
    if (!output.copy_in(input.base + from, length)) {
        return INFLATE_TOO_LONG;
    }
    input.seek((from + length) * 8);
    return INFLATE_DONE;
}

// The code of RFC 1951, section 3.2.6, where the block brings none of its own.
PORTABLE InflateStatus fixed_codes(InflateCodes &codes) {
    warp_barrier();
    for (u32 symbol = lane(); symbol < 288; symbol += WIDTH) {
        codes.lengths[symbol] = symbol < 144 ? 8 : symbol < 256 ? 9 : symbol < 280 ? 7 : 8;
    }
    for (u32 symbol = lane(); symbol < 32; symbol += WIDTH) {
        codes.lengths[288 + symbol] = 5;
    }
    return codes.build(288, 32);
}

PORTABLE InflateStatus dynamic_codes(InflateInput &input, InflateCodes &codes) {
    if (!input.refill()) {
        return INFLATE_TRUNCATED;
    }
    u32 literals = 257 + input.take(5);
    u32 distances = 1 + input.take(5);
    u32 sizes = 4 + input.take(4);
    if (literals > 286 || distances > 30) {
        return INFLATE_BAD_CODES;
    }
    warp_barrier();
    for (u32 i = lane(); i < 19; i += WIDTH) {
        codes.lengths[i] = 0;
    }
    warp_barrier();
    // The order in which the stream has them, five bits each.
    constexpr u64 ORDER_LOW = 16ull | 17ull << 5 | 18ull << 10 | 0ull << 15 | 8ull << 20 | 7ull << 25 |
        9ull << 30 | 6ull << 35 | 10ull << 40 | 5ull << 45 | 11ull << 50 | 4ull << 55;
    constexpr u64 ORDER_HIGH =
        12ull | 3ull << 5 | 13ull << 10 | 2ull << 15 | 14ull << 20 | 1ull << 25 | 15ull << 30;
    for (u32 i = 0; i < sizes; i++) {
        if (!input.refill()) {
            return INFLATE_TRUNCATED;
        }
        u32 symbol = static_cast<u32>(i < 12 ? ORDER_LOW >> (5 * i) : ORDER_HIGH >> (5 * (i - 12))) & 31;
        u32 size = input.take(3);
        if (lane() == 0) {
            codes.lengths[symbol] = static_cast<u8>(size);
        }
    }
    if (!codes.build_sizes()) {
        return INFLATE_BAD_CODES;
    }
    u32 known = 0;
    u32 before = 0;
    while (known < literals + distances) {
        if (!input.refill()) {
            return INFLATE_TRUNCATED;
        }
        u32 entry = codes.distances[input.peek(SIZE_BITS)];
        if (kind_of(entry) != LITERAL) {
            return INFLATE_BAD_SYMBOL;
        }
        input.drop(entry & 15);
        u32 symbol = value_of(entry);
        u32 times = 1;
        if (symbol == 16) {
            if (known == 0) {
                return INFLATE_BAD_CODES;
            }
            times = 3 + input.take(2);
        } else if (symbol >= 17) {
            times = symbol == 17 ? 3 + input.take(3) : 11 + input.take(7);
            before = 0;
        } else {
            before = symbol;
        }
        if (times > literals + distances - known) {
            return INFLATE_BAD_CODES;
        }
        for (u32 i = lane(); i < times; i += WIDTH) {
            codes.lengths[known + i] = static_cast<u8>(before);
        }
        known += times;
    }
    warp_barrier();
    if (codes.lengths[256] == 0) {
        return INFLATE_BAD_CODES;
    }
    return codes.build(literals, distances);
}

PORTABLE InflateStatus inflate_block(InflateInput &input, InflateOutput &output, const InflateCodes &codes) {
    u32 run = 0;
    while (true) {
        if (!input.refill()) {
            return INFLATE_TRUNCATED;
        }
        u32 entry = codes.literals[input.peek(LITERAL_BITS)];
        if (kind_of(entry) == LONG) {
            entry = codes.long_literal(input.bits);
        }
        input.drop(entry & 15);
        if (kind_of(entry) == LITERAL) {
            if (!output.literal(value_of(entry))) {
                return INFLATE_TOO_LONG;
            }
            if (WIDTH > 1 && ++run == LITERALS_OF_A_RUN) {
                run = 0;
                InflateStatus status = inflate_run(input, output, codes);
                if (status != INFLATE_DONE) {
                    return status;
                }
            }
            continue;
        }
        run = 0;
        if (kind_of(entry) != LENGTH) {
            return kind_of(entry) == END ? INFLATE_DONE : INFLATE_BAD_SYMBOL;
        }
        u32 length = value_of(entry) + input.take(extra_of(entry));
        if (!input.refill()) {
            return INFLATE_TRUNCATED;
        }
        entry = codes.distances[input.peek(DISTANCE_BITS)];
        if (kind_of(entry) == LONG) {
            entry = codes.long_distance(input.bits);
        }
        if (kind_of(entry) != LITERAL) {
            return INFLATE_BAD_SYMBOL;
        }
        input.drop(entry & 15);
        u32 distance = value_of(entry) + input.take(extra_of(entry));
        if (distance > output.position()) {
            return INFLATE_BAD_DISTANCE;
        }
        if (!output.copy_back(distance, length)) {
            return INFLATE_TOO_LONG;
        }
    }
}

PORTABLE InflateStatus inflate_blocks(InflateInput &input, InflateOutput &output, InflateCodes &codes) {
    bool last = false;
    while (!last) {
        if (!input.refill()) {
            return INFLATE_TRUNCATED;
        }
        last = input.take(1) == 1;
        u32 type = input.take(2);
        InflateStatus status;
        if (type == 0) {
            status = inflate_stored(input, output);
        } else if (type == 3) {
            status = INFLATE_BAD_BLOCK;
        } else {
            status = type == 1 ? fixed_codes(codes) : dynamic_codes(input, codes);
            if (status == INFLATE_DONE) {
                status = inflate_block(input, output, codes);
            }
        }
        if (status != INFLATE_DONE) {
            return status;
        }
    }
    if (!output.finish()) {
        return INFLATE_TOO_LONG;
    }
    return output.written == output.room ? INFLATE_DONE : INFLATE_TOO_SHORT;
}

extern "C" __global__ void __launch_bounds__(INFLATE_WARPS * 32) penstock_inflate(InflateLaunch launch) {
    __shared__ InflateCodes codes[INFLATE_WARPS];
    if (threadIdx.x % 32 >= WIDTH) {
        return;
    }
    u32 warp = threadIdx.x / 32;
    u64 warps = u64{gridDim.x} * INFLATE_WARPS;
    for (u64 number = u64{blockIdx.x} * INFLATE_WARPS + warp; number < launch.count; number += warps) {
        InflateStream stream = load<InflateStream>(launch.streams + sizeof(InflateStream) * number);
        InflateInput input(stream.input, stream.length);
        InflateOutput output(stream.output, stream.room);
        InflateStatus status = inflate_blocks(input, output, codes[warp]);
        // Behind the end there are zeros to be decoded, for a while.
        status = input.position() > input.end * 8 ? INFLATE_TRUNCATED : status;
        if (lane() == 0) {
            u64 at = launch.verdicts + sizeof(InflateVerdict) * number;
            store(at, InflateVerdict{status, output.written});
        }
    }
}
