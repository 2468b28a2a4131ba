// Checksums of many buffers in one launch: zlib's Adler-32 and HDF5's Fletcher-32. Both are two
// sums over the bytes, the second one weighted by the distance to the end, so that threads can add
// up parts in any order.
#pragma once

#include "memory.cuh"

// gpu/checksum.rs declares the same structs.

struct ChecksumBuffer {
    // The number of stretches in the preceding buffers. It must stay the first member.
    u64 first;
    u64 data;
    u64 length;
    // The address of the four bytes of the stored checksum, at any alignment; 0 if there is none.
    u64 stored;
};
static_assert(sizeof(ChecksumBuffer) == 32);

// Both are zero before the launch.
struct ChecksumSums {
    u64 first;
    u64 second;
};
static_assert(sizeof(ChecksumSums) == 16);

struct ChecksumVerdict {
    u32 computed;
    // 1 if it equals the stored checksum or none is stored.
    u32 sound;
};
static_assert(sizeof(ChecksumVerdict) == 8);

enum ChecksumKind : u32 { ADLER32, FLETCHER32 };

struct ChecksumLaunch {
    u64 buffers;
    u64 sums;
    u64 verdicts;
    u64 stretches;
    u32 count;
    u32 kind;
};
static_assert(sizeof(ChecksumLaunch) == 40);

// A stretch is the part that the threads of a warp sum together: 1 KiB each, in adjacent groups of
// 16 bytes.
constexpr u32 LANES = 32;
constexpr u32 GROUP = 16;
constexpr u32 GROUPS_PER_LANE = 64;
constexpr u32 STRETCH = LANES * GROUP * GROUPS_PER_LANE;

// The sum modulo `modulus`, with the modulus itself for its multiples other than 0. For Fletcher-32
// this distinguishes data that are all zero; for Adler-32 it makes no difference.
PORTABLE u64 folded(u64 sum, u32 modulus) {
    return sum == 0 ? 0 : (sum - 1) % modulus + 1;
}

// Sums over a part of a buffer, whose weights count from `end`, a position at or after its end.
// Positions count bytes for Adler-32, and big-endian words of two bytes for Fletcher-32.
template <bool WORDS> struct PartialSums {
    u64 end;
    u64 first = 0;
    u64 second = 0;

    PORTABLE explicit PartialSums(u64 end) : end(end) {}

    PORTABLE void add_byte(u64 index, u32 byte) {
        u32 value = WORDS && (index & 1) == 0 ? byte << 8 : byte;
        u32 weight = static_cast<u32>(end - (WORDS ? index >> 1 : index));
        first += value;
        second += u64{weight} * value;
    }
};

template <bool WORDS>
PORTABLE void sum_stretch(const ChecksumLaunch &launch, u32 number, const ChecksumBuffer &buffer, u64 stretch, u32 lane) {
    const u32 modulus = WORDS ? 65535 : 65521;
    // Groups lie at multiples of 16; the first and the last one can reach beyond the buffer.
    u64 lead = buffer.data & (GROUP - 1);
    u64 begin = stretch * STRETCH;
    u64 stretch_end = begin + STRETCH - lead;
    stretch_end = stretch_end < buffer.length ? stretch_end : buffer.length;
    PartialSums<WORDS> sums(WORDS ? (stretch_end + 1) >> 1 : stretch_end);
    for (u32 i = 0; i < GROUPS_PER_LANE; i++) {
        // The offset of the group from the group in which the buffer begins.
        u64 from = begin + (u64{i} * LANES + lane) * GROUP;
        if (from >= lead + buffer.length) {
            break;
        }
        u64 address = buffer.data - lead + from;
        u64 index = from - lead;
        if (from >= lead && from + GROUP <= lead + buffer.length) {
            Wide group = load<Wide>(address);
            for (u32 j = 0; j < 8; j++) {
                sums.add_byte(index + j, static_cast<u32>(group.low >> (8 * j)) & 0xff);
            }
            for (u32 j = 0; j < 8; j++) {
                sums.add_byte(index + 8 + j, static_cast<u32>(group.high >> (8 * j)) & 0xff);
            }
        } else {
            for (u32 j = 0; j < GROUP; j++) {
                // Before the buffer the index has wrapped around and is large.
                if (index + j < buffer.length) {
                    sums.add_byte(index + j, load<u8>(address + j));
                }
            }
        }
    }
    if (sums.first != 0) {
        u64 places = WORDS ? (buffer.length + 1) >> 1 : buffer.length;
        u64 first = folded(sums.first, modulus);
        u64 behind = folded(places - sums.end, modulus);
        u64 at = launch.sums + sizeof(ChecksumSums) * u64{number};
        add(at, first);
        add(at + 8, folded(sums.second + behind * first, modulus));
    }
}

// The index of the buffer to which a stretch of the launch belongs.
PORTABLE u32 buffer_of(const ChecksumLaunch &launch, u64 stretch) {
    u32 low = 0;
    u32 high = launch.count - 1;
    while (low < high) {
        u32 middle = low + (high - low + 1) / 2;
        if (load<u64>(launch.buffers + sizeof(ChecksumBuffer) * u64{middle}) <= stretch) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

// Computes the sums. `penstock_checksum_verdicts` must be launched after it.
extern "C" __global__ void penstock_checksum_sums(ChecksumLaunch launch) {
    u64 thread = u64{blockIdx.x} * blockDim.x + threadIdx.x;
    u64 warps = u64{gridDim.x} * blockDim.x / LANES;
    for (u64 stretch = thread / LANES; stretch < launch.stretches; stretch += warps) {
        u32 number = buffer_of(launch, stretch);
        ChecksumBuffer buffer = load<ChecksumBuffer>(launch.buffers + sizeof(ChecksumBuffer) * u64{number});
        u64 within = stretch - buffer.first;
        u32 lane = static_cast<u32>(thread % LANES);
        if (launch.kind == FLETCHER32) {
            sum_stretch<true>(launch, number, buffer, within, lane);
        } else {
            sum_stretch<false>(launch, number, buffer, within, lane);
        }
    }
}

// Swaps the two bytes of each half.
PORTABLE u32 swapped_halves(u32 value) {
    return (value & 0x00ff00ffu) << 8 | (value >> 8 & 0x00ff00ffu);
}

extern "C" __global__ void penstock_checksum_verdicts(ChecksumLaunch launch) {
    u32 threads = gridDim.x * blockDim.x;
    for (u64 number = blockIdx.x * blockDim.x + threadIdx.x; number < launch.count; number += threads) {
        ChecksumBuffer buffer = load<ChecksumBuffer>(launch.buffers + sizeof(ChecksumBuffer) * number);
        ChecksumSums sums = load<ChecksumSums>(launch.sums + sizeof(ChecksumSums) * number);
        u32 computed;
        if (launch.kind == FLETCHER32) {
            computed = static_cast<u32>(folded(sums.second, 65535) << 16 | folded(sums.first, 65535));
        } else {
            u64 first = (sums.first + 1) % 65521;
            u64 second = (sums.second + buffer.length % 65521) % 65521;
            computed = static_cast<u32>(second << 16 | first);
        }
        bool sound = true;
        if (buffer.stored != 0) {
            u32 little = 0;
            u32 big = 0;
            for (u32 i = 0; i < 4; i++) {
                u32 byte = load<u8>(buffer.stored + i);
                little |= byte << (8 * i);
                big |= byte << (24 - 8 * i);
            }
            // zlib stores its checksum big-endian. HDF5 stores its own little-endian, and before
            // 1.6.3 stored it with the bytes of both sums swapped.
            sound = launch.kind == FLETCHER32
                ? little == computed || little == swapped_halves(computed)
                : big == computed;
        }
        store(launch.verdicts + sizeof(ChecksumVerdict) * number, ChecksumVerdict{computed, sound});
    }
}
