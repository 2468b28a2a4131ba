// Encodes chunks as deflate streams (RFC 1951) that any decoder reads.
//
// A chunk is cut into segments, which warps encode independently. A warp encodes its segment in
// three passes, all in shared memory but the list of items:
//
// 1. Lists the items: literals and matches (deflate_items.cuh). Each lane looks for a match at one
//    byte of a tile of WIDTH bytes, by two hash tables (deflate_matches.cuh). The lanes then agree
//    on the items that cover the tile without overlap, and count their symbols.
// 2. Builds an optimal prefix code of limited length from these counts (deflate_codes.cuh), and
//    compares its size with that of the fixed code and of a stored block.
// 3. Writes the bits (deflate_block.cuh). A prefix sum over the lanes finds the first bit of each
//    item, so all lanes write at the same time.
//
// A match may begin in an earlier segment, because the decoder has those bytes by then. Each
// segment becomes a block that ends at a whole byte, so a second launch can join the blocks to zlib
// streams (RFC 1950) by copying bytes (deflate_join.cuh). docs/decisions/0020 has the reasons for
// an encoder of this project.
#pragma once

#include "deflate_block.cuh"
#include "deflate_chunks.cuh"
#include "deflate_items.cuh"

// gpu/deflate.rs declares the same struct.

struct DeflateLaunch {
    u64 chunks;
    // The size of each encoded segment, of four bytes.
    u64 sizes;
    // SEGMENT_ROOM bytes for each segment.
    u64 rooms;
    // The items of a segment, two bytes each, for each warp of the launch.
    u64 items;
    u32 count;
    u32 segments;
};
static_assert(sizeof(DeflateLaunch) == 40);

// Encodes a segment and returns its size in bytes.
PORTABLE u32 deflate_segment(const Segment &segment, u64 room, u64 items, DeflateShared &shared) {
    bool is_last = segment.begin + segment.length == segment.chunk_length;
    u32 count = list_items(segment, items, shared);
    u32 bits_of_codes = build_codes(shared);
    BlockBits bits = bits_of_items(shared);
    bool is_fixed = bits.fixed <= bits_of_codes + bits.own;
    u32 best = 3 + (is_fixed ? bits.fixed : bits_of_codes + bits.own);
    // An empty stored block ends a block that is not the last one at a whole byte.
    u32 bytes = is_last ? (best + 7) / 8 : (best + 3 + 7) / 8 + 4;
    if (bytes >= 5 + segment.length) {
        return store_segment(segment, is_last, room);
    }
    DeflateOutput output(room, shared.coding.buffer);
    output.put_one(u32{is_last} | (is_fixed ? 1 : 2) << 1, 3);
    if (is_fixed) {
        for (u32 symbol = lane(); symbol < BLOCK_SYMBOLS; symbol += WIDTH) {
            shared.lengths[symbol] = static_cast<u8>(fixed_length(symbol));
        }
        warp_barrier();
        if (lane() == 0) {
            assign_codes(shared.lengths, LITERAL_SYMBOLS, shared.codes);
            assign_codes(
                shared.lengths + LITERAL_SYMBOLS, DISTANCE_SYMBOLS, shared.codes + LITERAL_SYMBOLS
            );
        }
        warp_barrier();
    } else {
        put_codes(output, shared.coding.runs);
    }
    put_items(output, items, count, shared);
    if (!is_last) {
        u32 to_byte = (8 - (output.used + 3) % 8) % 8;
        output.put_one(0, 3 + to_byte);
        output.put_one(0, 16);
        output.put_one(0xffff, 16);
    }
    return output.finish();
}

extern "C" __global__ void __launch_bounds__(DEFLATE_WARPS * 32) penstock_deflate(DeflateLaunch launch) {
    __shared__ DeflateShared shared[DEFLATE_WARPS];
    if (threadIdx.x % 32 >= WIDTH) {
        return;
    }
    u32 warp = threadIdx.x / 32;
    u64 mine = u64{blockIdx.x} * DEFLATE_WARPS + warp;
    u64 warps = u64{gridDim.x} * DEFLATE_WARPS;
    u64 items = launch.items + 2ull * SEGMENT * mine;
    for (u64 number = mine; number < launch.segments; number += warps) {
        u64 at = launch.chunks + sizeof(DeflateChunk) * chunk_of(launch.chunks, launch.count, number);
        DeflateChunk chunk = {load<u64>(at), load<u64>(at + 8), load<u64>(at + 16)};
        Segment segment = {chunk.input, chunk.length, (number - chunk.first) * SEGMENT, SEGMENT};
        if (chunk.length - segment.begin < SEGMENT) {
            segment.length = static_cast<u32>(chunk.length - segment.begin);
        }
        u32 size = deflate_segment(segment, launch.rooms + u64{SEGMENT_ROOM} * number, items, shared[warp]);
        if (lane() == 0) {
            store(launch.sizes + 4 * number, size);
        }
        warp_barrier();
    }
}
