// The chunks that one launch encodes, and their segments.
#pragma once

#include "memory.cuh"

// gpu/deflate.rs declares the same structs and values.

constexpr u32 DEFLATE_WARPS = 2;
constexpr u32 SEGMENT = 32768;
// A stored block has five bytes of its own.
constexpr u32 SEGMENT_ROOM = SEGMENT + 8;

struct DeflateChunk {
    // The number of segments in the preceding chunks. It must stay the first member.
    u64 first;
    // A multiple of 8; sixteen bytes after the end can be read.
    u64 input;
    u64 length;
};
static_assert(sizeof(DeflateChunk) == 24);

// The chunk of a segment: the last one whose first segment is not after it.
PORTABLE u32 chunk_of(u64 chunks, u32 count, u64 segment) {
    u32 low = 0;
    u32 high = count - 1;
    while (low < high) {
        u32 middle = high - (high - low) / 2;
        if (load<u64>(chunks + sizeof(DeflateChunk) * middle) <= segment) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}
