// Decodes raw deflate streams (RFC 1951), one per warp, any number of them in one launch.
//
// A deflate stream is sequential: the end of a code is known only once it is decoded. A warp
// decodes it in parallel all the same, in two steps:
//
// 1. Each lane decodes speculatively at its own bit offsets, and the warp follows the true sequence
//    of symbols through these results (inflate_symbols.cuh). The result is at most one symbol per
//    lane.
// 2. A prefix sum of their lengths gives each symbol its place in the output. Then lanes are
//    assigned to output bytes: each finds the symbol that covers its byte, and the literal or
//    earlier byte that is its value (inflate_output.cuh). References between bytes of the same
//    group are resolved by pointer doubling.
//
// The tables of the prefix codes lie in shared memory (inflate_codes.cuh); rare, long codes are
// decoded one at a time.
//
// The streams come from files and may be damaged or malicious. Every memory access is checked
// against the input or the room of its own stream, every symbol takes at least one bit of an input
// of finite length, and every error becomes a status.
//
// All lanes of a warp hold the same decoder state, so that they need not exchange it; they share
// the work of building tables and of moving bytes. Data of a file affect an address only through
// the checks in InflateInput and InflateOutput.
#pragma once

#include "inflate_codes.cuh"
#include "inflate_input.cuh"
#include "inflate_output.cuh"
#include "inflate_symbols.cuh"
#include "memory.cuh"
#include "size_order.cuh"

// gpu/inflate.rs declares the same structs.

struct InflateStream {
    // Both addresses may have any alignment.
    u64 input;
    u64 output;
    u32 length;
    // The exact number of bytes to which the stream must decode.
    u32 room;
};
static_assert(sizeof(InflateStream) == 24);

struct InflateVerdict {
    u32 status;
    // Bytes of the output that were decoded.
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

// The shared memory of a warp.
struct InflateShared {
    InflateCodes codes;
    SymbolJumps jumps;
    u32 ring[INPUT_WORDS];
    OutputShared output;
};

PORTABLE InflateStatus inflate_stored(InflateInput &input, InflateOutput &output) {
    input.at = (input.at + 7) / 8 * 8;
    u32 length = input.take(16);
    u32 complement = input.take(16);
    if ((length ^ complement) != 0xffff) {
        return INFLATE_BAD_STORED;
    }
    u64 from = input.at / 8;
    if (from + length > input.end) {
        return INFLATE_TRUNCATED;
    }
    if (!output.copy_in(input.base + from, length)) {
        return INFLATE_TOO_LONG;
    }
    input.seek((from + length) * 8);
    return INFLATE_DONE;
}

// The fixed code of RFC 1951, section 3.2.6.
PORTABLE void fixed_lengths(InflateCodes &codes) {
    warp_barrier();
    for (u32 symbol = lane(); symbol < 288; symbol += WIDTH) {
        codes.lengths[symbol] = symbol < 144 ? 8 : symbol < 256 ? 9 : symbol < 280 ? 7 : 8;
    }
    for (u32 symbol = lane(); symbol < 32; symbol += WIDTH) {
        codes.lengths[288 + symbol] = 5;
    }
}

PORTABLE InflateStatus dynamic_lengths(InflateInput &input, InflateCodes &codes, u32 &literals, u32 &distances) {
    literals = 257 + input.take(5);
    distances = 1 + input.take(5);
    u32 sizes = 4 + input.take(4);
    if (literals > 286 || distances > 30) {
        return INFLATE_BAD_CODES;
    }
    warp_barrier();
    for (u32 i = lane(); i < 19; i += WIDTH) {
        codes.lengths[i] = 0;
    }
    warp_barrier();
    for (u32 i = 0; i < sizes; i++) {
        u32 size = input.take(3);
        if (lane() == 0) {
            codes.lengths[size_symbol(i)] = static_cast<u8>(size);
        }
    }
    if (!codes.build_sizes()) {
        return INFLATE_BAD_CODES;
    }
    const u32 wanted = literals + distances;
    u32 known = 0;
    u32 before = 0;
    while (known < wanted) {
        input.ready();
        u64 bits = input.look(0);
        // Four symbols take at most 56 bits.
        for (u32 number = 0; number < 4 && known < wanted; number++) {
            u32 entry = codes.distances[static_cast<u32>(bits) & ((1u << SIZE_BITS) - 1)];
            if (kind_of(entry) != LITERAL) {
                return INFLATE_BAD_SYMBOL;
            }
            u32 symbol = value_of(entry, 0);
            u32 rest = static_cast<u32>(bits >> bits_of(entry));
            u32 extra = symbol < 16 ? 0 : symbol == 16 ? 2 : symbol == 17 ? 3 : 7;
            u32 times = (symbol < 16 ? 1 : symbol < 18 ? 3 : 11) + (rest & ((1u << extra) - 1));
            before = symbol < 16 ? symbol : symbol == 16 ? before : 0;
            if (times > wanted - known || (symbol == 16 && known == 0)) {
                return INFLATE_BAD_CODES;
            }
            for (u32 i = lane(); i < times; i += WIDTH) {
                codes.lengths[known + i] = static_cast<u8>(before);
            }
            known += times;
            input.at += bits_of(entry) + extra;
            bits >>= bits_of(entry) + extra;
        }
    }
    warp_barrier();
    return codes.lengths[256] == 0 ? INFLATE_BAD_CODES : INFLATE_DONE;
}

// Decodes one symbol with a code of any length, which may end the block.
PORTABLE InflateStatus inflate_one(InflateInput &input, InflateOutput &output, const InflateCodes &codes, bool &ended) {
    u64 bits = input.look(0);
    u32 entry = codes.literals[static_cast<u32>(bits) & ((1u << LITERAL_BITS) - 1)];
    if (kind_of(entry) == LONG) {
        entry = codes.long_literal(bits);
    }
    if (kind_of(entry) == INVALID) {
        return INFLATE_BAD_SYMBOL;
    }
    u32 taken = bits_of(entry);
    u32 symbol = value_of(entry, static_cast<u32>(bits));
    ended = kind_of(entry) == END;
    if (kind_of(entry) == LENGTH) {
        u64 rest = bits >> taken;
        entry = codes.distances[static_cast<u32>(rest) & ((1u << DISTANCE_BITS) - 1)];
        if (kind_of(entry) == LONG) {
            entry = codes.long_distance(rest);
        }
        if (kind_of(entry) != LITERAL) {
            return INFLATE_BAD_SYMBOL;
        }
        taken += bits_of(entry);
        symbol = match_of(symbol, value_of(entry, static_cast<u32>(rest)));
    }
    input.at += taken;
    return ended || input.is_over() ? INFLATE_DONE : output.symbols(symbol, 1);
}

PORTABLE InflateStatus inflate_block(InflateInput &input, InflateOutput &output, InflateShared &shared) {
    bool ended = false;
    while (!ended) {
        input.ready();
        FoundSymbols found = find_symbols(input, shared.codes, shared.jumps);
        input.at += found.bits;
        if (input.is_over()) {
            return INFLATE_TRUNCATED;
        }
        InflateStatus status = INFLATE_DONE;
        if (found.count > 0) {
            status = output.symbols(found.symbol, found.count);
        }
        if (found.stopped && status == INFLATE_DONE) {
            input.ready();
            status = inflate_one(input, output, shared.codes, ended);
        }
        if (status != INFLATE_DONE) {
            return status;
        }
    }
    return INFLATE_DONE;
}

PORTABLE InflateStatus inflate_blocks(InflateInput &input, InflateOutput &output, InflateShared &shared) {
    bool last = false;
    while (!last) {
        if (input.is_over()) {
            return INFLATE_TRUNCATED;
        }
        last = input.take(1) == 1;
        u32 type = input.take(2);
        InflateStatus status = INFLATE_DONE;
        if (type == 0) {
            status = inflate_stored(input, output);
        } else if (type == 3) {
            status = INFLATE_BAD_BLOCK;
        } else {
            u32 literals = 288;
            u32 distances = 32;
            if (type == 1) {
                fixed_lengths(shared.codes);
            } else {
                status = dynamic_lengths(input, shared.codes, literals, distances);
            }
            if (status == INFLATE_DONE) {
                status = shared.codes.build(literals, distances);
            }
            if (status == INFLATE_DONE) {
                status = inflate_block(input, output, shared);
            }
        }
        if (status != INFLATE_DONE) {
            return status;
        }
    }
    return output.written == output.room ? INFLATE_DONE : INFLATE_TOO_SHORT;
}

extern "C" __global__ void __launch_bounds__(INFLATE_WARPS * 32) penstock_inflate(InflateLaunch launch) {
    __shared__ InflateShared shared[INFLATE_WARPS];
    if (threadIdx.x % 32 >= WIDTH) {
        return;
    }
    u32 warp = threadIdx.x / 32;
    shared[warp].jumps.prepare();
    u64 warps = u64{gridDim.x} * INFLATE_WARPS;
    for (u64 number = u64{blockIdx.x} * INFLATE_WARPS + warp; number < launch.count; number += warps) {
        InflateStream stream = load<InflateStream>(launch.streams + sizeof(InflateStream) * number);
        InflateShared &mine = shared[warp];
        InflateInput input(stream.input, stream.length, mine.ring);
        InflateOutput output(stream.output, stream.room, mine.output);
        InflateStatus status = inflate_blocks(input, output, mine);
        // Decoding may have continued with the zeros that follow the input.
        status = input.is_over() ? INFLATE_TRUNCATED : status;
        if (lane() == 0) {
            u64 at = launch.verdicts + sizeof(InflateVerdict) * number;
            store(at, InflateVerdict{status, output.written});
        }
    }
}
