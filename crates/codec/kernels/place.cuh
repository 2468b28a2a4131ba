// Moves elements between decoded chunks and arrays: any number of strided boxes in one launch. The
// bytes of each element may be unshuffled, shuffled, swapped or converted.
#pragma once

#include "convert.cuh"
#include "decode.cuh"
#include "memory.cuh"

// gpu/place.rs declares the same structs.

// One axis of a box: `count` steps of `source_stride` and `target_stride` bytes.
struct Axis {
    u64 count;
    i64 source_stride;
    i64 target_stride;
};
static_assert(sizeof(Axis) == 24);

// Flags of `StridedBox::aligned`: whether the address of each piece is aligned.
enum : u32 { SOURCE_ALIGNED = 1, TARGET_ALIGNED = 2 };

// A strided box of pieces, the units that one thread moves at a time.
struct StridedBox {
    // The number of pieces in the preceding boxes. It must stay the first member.
    u64 first;
    // The number of pieces in this box.
    u64 pieces;
    u64 source;
    u64 target;
    // The offset of the first piece from `source` and `target`, as if the bytes were not shuffled.
    u64 source_offset;
    u64 target_offset;
    // The number of shuffled elements of the chunk; 0 if the bytes are in order.
    u64 source_shuffled;
    u64 target_shuffled;
    // The index and number of its axes in the table of axes, outermost first.
    u32 axes;
    u32 rank;
    // The size of a piece at the source in bytes.
    u32 width;
    u32 aligned;
};
static_assert(sizeof(StridedBox) == 80);

enum ConversionKind : u32 { COPY, SWAP, CONVERT, DECODE };

struct PlaceLaunch {
    u64 boxes;
    u64 axes;
    u64 pieces;
    u32 count;
    u32 conversion;
    // For CONVERT and DECODE: the kinds of number and whether they are big-endian.
    u32 from;
    u32 to;
    u32 from_big;
    u32 to_big;
    // The sizes of the shuffled elements in bytes.
    u32 source_element;
    u32 target_element;
    // For DECODE.
    DecodeLaunch decode;
};
static_assert(sizeof(PlaceLaunch) == 112);

// Pieces that a block moves at a time.
constexpr u32 PLACE_TILE = 2048;

PORTABLE u64 reversed(u64 value) {
    value = (value & 0x00ff00ff00ff00ffull) << 8 | (value >> 8 & 0x00ff00ff00ff00ffull);
    value = (value & 0x0000ffff0000ffffull) << 16 | (value >> 16 & 0x0000ffff0000ffffull);
    return value << 32 | value >> 32;
}

// Reverses the bytes of a piece. The bytes after it are zero and stay zero.
PORTABLE Wide swapped(Wide piece, u32 width) {
    if (width == 16) {
        return {reversed(piece.high), reversed(piece.low)};
    }
    return {reversed(piece.low) >> (64 - 8 * width), 0};
}

// The bytes of a piece in a shuffled chunk, which has one plane for each byte of an element.
struct Planes {
    u64 first;
    // The distance between the bytes of the piece; 0 if they do not all belong to one element.
    u64 step;
};

PORTABLE Planes planes_of(u64 offset, u64 elements, u32 size, u32 width) {
    u64 element;
    if (offset <= 0xffffffffu) {
        element = static_cast<u32>(offset) / size;
    } else {
        element = offset / size;
    }
    u64 plane = offset - element * size;
    if (element < elements) {
        return {plane * elements + element, plane + width <= size ? elements : 0};
    }
    // Bytes after the last whole element are not shuffled.
    return {offset, 1};
}

PORTABLE Wide read_shuffled(u64 chunk, u64 offset, u64 elements, u32 size, u32 width) {
    Planes planes = planes_of(offset, elements, size, width);
    Wide piece = {0, 0};
    for (u32 i = 0; i < width; i++) {
        u64 from = planes.step ? planes.first + i * planes.step
                               : planes_of(offset + i, elements, size, 1).first;
        u64 byte = load<u8>(chunk + from);
        (i < 8 ? piece.low : piece.high) |= byte << (8 * (i & 7));
    }
    return piece;
}

PORTABLE void write_shuffled(u64 chunk, u64 offset, u64 elements, u32 size, u32 width, Wide piece) {
    Planes planes = planes_of(offset, elements, size, width);
    for (u32 i = 0; i < width; i++) {
        u64 to = planes.step ? planes.first + i * planes.step
                             : planes_of(offset + i, elements, size, 1).first;
        store(chunk + to, static_cast<u8>((i < 8 ? piece.low : piece.high) >> (8 * (i & 7))));
    }
}

PORTABLE Wide read_piece(u64 address, u32 width, bool aligned) {
    if (aligned) {
        switch (width) {
        case 1:
            return {load<u8>(address), 0};
        case 2:
            return {load<u16>(address), 0};
        case 4:
            return {load<u32>(address), 0};
        case 8:
            return {load<u64>(address), 0};
        default:
            return load<Wide>(address);
        }
    }
    Wide piece = {0, 0};
    for (u32 i = 0; i < width; i++) {
        u64 byte = load<u8>(address + i);
        (i < 8 ? piece.low : piece.high) |= byte << (8 * (i & 7));
    }
    return piece;
}

PORTABLE void write_piece(u64 address, u32 width, bool aligned, Wide piece) {
    if (aligned) {
        switch (width) {
        case 1:
            return store(address, static_cast<u8>(piece.low));
        case 2:
            return store(address, static_cast<u16>(piece.low));
        case 4:
            return store(address, static_cast<u32>(piece.low));
        case 8:
            return store(address, piece.low);
        default:
            return store(address, piece);
        }
    }
    for (u32 i = 0; i < width; i++) {
        store(address + i, static_cast<u8>((i < 8 ? piece.low : piece.high) >> (8 * (i & 7))));
    }
}

// Adds the distance from the first piece of the box to piece `index` to both offsets.
template <class Index>
PORTABLE void locate(const PlaceLaunch &launch, const StridedBox &box, Index index, u64 &source, u64 &target) {
    for (u32 axis = box.rank; axis-- > 0;) {
        Axis along = load<Axis>(launch.axes + sizeof(Axis) * (u64{box.axes} + axis));
        Index steps = index;
        if (axis > 0) {
            index /= static_cast<Index>(along.count);
            steps -= index * static_cast<Index>(along.count);
        }
        source += static_cast<u64>(steps) * static_cast<u64>(along.source_stride);
        target += static_cast<u64>(steps) * static_cast<u64>(along.target_stride);
    }
}

PORTABLE void move_piece(const PlaceLaunch &launch, const StridedBox &box, u64 index) {
    u64 source = box.source_offset;
    u64 target = box.target_offset;
    if (box.pieces <= 0xffffffffu) {
        locate(launch, box, static_cast<u32>(index), source, target);
    } else {
        locate(launch, box, index, source, target);
    }

    u32 width = box.width;
    Wide piece = box.source_shuffled
        ? read_shuffled(box.source, source, box.source_shuffled, launch.source_element, width)
        : read_piece(box.source + source, width, box.aligned & SOURCE_ALIGNED);
    if (launch.conversion == SWAP) {
        piece = swapped(piece, width);
    } else if (launch.conversion == CONVERT) {
        piece = launch.from_big ? swapped(piece, width) : piece;
        piece.low = converted(launch.from, launch.to, launch.from_big || launch.to_big, piece.low);
        width = size_of(launch.to);
        piece = launch.to_big ? swapped(piece, width) : piece;
    } else if (launch.conversion == DECODE) {
        piece = launch.from_big ? swapped(piece, width) : piece;
        piece.low = decoded(launch.from, launch.to, launch.decode, piece.low);
        width = size_of(launch.to);
    }
    if (box.target_shuffled) {
        write_shuffled(box.target, target, box.target_shuffled, launch.target_element, width, piece);
    } else {
        write_piece(box.target + target, width, box.aligned & TARGET_ALIGNED, piece);
    }
}

// The index of the box, from `low` to `high`, to which piece `piece` of the launch belongs.
PORTABLE u32 box_of(const PlaceLaunch &launch, u32 low, u32 high, u64 piece) {
    while (low < high) {
        u32 middle = low + (high - low + 1) / 2;
        u64 first = load<u64>(launch.boxes + sizeof(StridedBox) * u64{middle});
        if (first <= piece) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

extern "C" __global__ void penstock_place(PlaceLaunch launch) {
    for (u64 begin = u64{blockIdx.x} * PLACE_TILE; begin < launch.pieces; begin += u64{gridDim.x} * PLACE_TILE) {
        u64 end = launch.pieces - begin < PLACE_TILE ? launch.pieces : begin + PLACE_TILE;
        u32 at = box_of(launch, 0, launch.count - 1, begin);
        u32 last = box_of(launch, at, launch.count - 1, end - 1);
        StridedBox box = load<StridedBox>(launch.boxes + sizeof(StridedBox) * u64{at});
        for (u64 piece = begin + threadIdx.x; piece < end; piece += blockDim.x) {
            if (piece - box.first >= box.pieces) {
                at = box_of(launch, at + 1, last, piece);
                box = load<StridedBox>(launch.boxes + sizeof(StridedBox) * u64{at});
            }
            move_piece(launch, box, piece - box.first);
        }
    }
}
