// Joins the segments of each chunk to a zlib stream (RFC 1950).
#pragma once

#include "deflate_chunks.cuh"
#include "deflate_format.cuh"

struct DeflateJoin {
    u64 chunks;
    u64 sizes;
    u64 rooms;
    // The Adler-32 checksum of each chunk, in the first four bytes of eight.
    u64 checksums;
    // The streams of all chunks, one directly after the other.
    u64 output;
    // The end of each stream in the output, of eight bytes.
    u64 ends;
    u32 count;
    u32 segments;
};
static_assert(sizeof(DeflateJoin) == 56);

// The bytes of a zlib stream around the deflate stream.
constexpr u32 ZLIB_HEADER = 2;
constexpr u32 ZLIB_CHECKSUM = 4;

// Copies each segment behind the segments before it.
extern "C" __global__ void __launch_bounds__(DEFLATE_WARPS * 32) penstock_deflate_join(DeflateJoin launch) {
    if (threadIdx.x % 32 >= WIDTH) {
        return;
    }
    u64 warps = u64{gridDim.x} * DEFLATE_WARPS;
    for (u64 number = u64{blockIdx.x} * DEFLATE_WARPS + threadIdx.x / 32; number < launch.segments; number += warps) {
        u32 sum = 0;
        for (u64 before = lane(); before < number; before += WIDTH) {
            sum += load<u32>(launch.sizes + 4 * before);
        }
        u32 index = chunk_of(launch.chunks, launch.count, number);
        u64 at = launch.chunks + sizeof(DeflateChunk) * index;
        bool is_first = load<u64>(at) == number;
        bool is_last = index + 1 == launch.count ? number + 1 == launch.segments
                                                 : load<u64>(at + sizeof(DeflateChunk)) == number + 1;
        u64 to = launch.output + sums_over_lanes(sum).all + u64{index} * (ZLIB_HEADER + ZLIB_CHECKSUM) + ZLIB_HEADER;
        u64 from = launch.rooms + u64{SEGMENT_ROOM} * number;
        u32 size = load<u32>(launch.sizes + 4 * number);
        for (u32 i = lane(); i < size; i += WIDTH) {
            store(to + i, load<u8>(from + i));
        }
        if (is_first && lane() == 0) {
            // Deflate with a window of 32 KiB, encoded by a fast algorithm.
            store(to - 2, u8{0x78});
            store(to - 1, u8{0x5e});
        }
        if (is_last && lane() == 0) {
            u32 checksum = load<u32>(launch.checksums + 8ull * index);
            for (u32 i = 0; i < ZLIB_CHECKSUM; i++) {
                store(to + size + i, static_cast<u8>(checksum >> (24 - 8 * i)));
            }
            store(launch.ends + 8ull * index, to + size + ZLIB_CHECKSUM - launch.output);
        }
    }
}
