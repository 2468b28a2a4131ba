// The output of a deflate stream, which a warp writes.
#pragma once

#include "inflate_codes.cuh"
#include "memory.cuh"

// The source of an output byte: below 256, a literal; from BYTE_OF_MEMORY on, the byte at this
// distance less 1 before its group; from BYTE_OF_GROUP on, the byte with this index in its group.
constexpr u32 BYTE_OF_MEMORY = 256;
constexpr u32 BYTE_OF_GROUP = 1u << 30;

// A symbol is the value of a literal, or this bit with a match's length and, in the lower half, its
// distance less 1.
constexpr u32 MATCH = 1u << 31;

PORTABLE u32 match_of(u32 length, u32 distance) {
    return MATCH | length << 16 | ((distance - 1) & 0xffff);
}
PORTABLE u32 length_of(u32 symbol) {
    return symbol & MATCH ? symbol >> 16 & 0x1ff : 1;
}
PORTABLE u32 distance_of(u32 symbol) {
    return (symbol & 0xffff) + 1;
}

// Writes bytes in groups of one per lane. A group's bytes from memory are loaded together, and the
// group is stored when the next one is put, so that the warp does not wait for the loads.
struct InflateOutput {
    u64 base;
    u32 room;
    // Bytes written to memory or held.
    u32 written = 0;
    // The last group, which is not stored yet.
    u32 held = 0;
    u32 held_count = 0;
    // For each lane, whether a symbol begins at its byte.
    u32 *begins;

    PORTABLE InflateOutput(u64 base, u32 room, u32 *begins) : base(base), room(room), begins(begins) {}

    PORTABLE void store_held() {
        if (lane() < held_count) {
            store(base + (written - held_count) + lane(), static_cast<u8>(held));
        }
        held_count = 0;
        warp_barrier();
    }

    PORTABLE void put(u32 byte, u32 count) {
        store_held();
        held = byte;
        if (lane() < count && byte >= BYTE_OF_MEMORY) {
            held = load<u8>(base + (written - 1 - (byte - BYTE_OF_MEMORY)));
        }
        held_count = count;
        written += count;
    }

    // Writes the bytes of the symbols of the first `count` lanes, at least one.
    PORTABLE InflateStatus symbols(u32 symbol, u32 count) {
        const u32 size = lane() < count ? length_of(symbol) : 0;
        u32 behind = size;
        for (u32 step = 1; step < WIDTH; step *= 2) {
            u32 before = shuffle(behind, lane() - step);
            behind += lane() >= step ? before : 0;
        }
        const u32 start = behind - size;
        const u32 total = shuffle(behind, WIDTH - 1);
        if (total > room - written) {
            return INFLATE_TOO_LONG;
        }
        bool too_far = (symbol & MATCH) && distance_of(symbol) > written + start;
        if (lanes_where(lane() < count && too_far)) {
            return INFLATE_BAD_DISTANCE;
        }
        const u32 origin = written;
        u32 begun = 0;
        for (u32 done = 0; done < total; done += WIDTH) {
            begins[lane()] = 0;
            warp_barrier();
            if (lane() < count && start - done < WIDTH) {
                begins[start - done] = 1;
            }
            warp_barrier();
            u32 mask = lanes_where(begins[lane()] != 0);
            // The lane with the symbol of this lane's byte.
            u32 owner = begun + ones(mask & lanes_up_to_mine()) - 1;
            begun += ones(mask);
            u32 mine = shuffle(symbol, owner);
            u32 ordinal = done + lane() - shuffle(start, owner);
            u32 part = total - done < WIDTH ? total - done : WIDTH;
            bool is_match = lane() < part && mine & MATCH;
            u32 byte = lane() < part ? mine : 0;
            if (lanes_where(is_match)) {
                u32 distance = distance_of(mine);
                u32 from = origin + done + lane() - ordinal - distance;
                // A match longer than its distance repeats its first bytes.
                bool overlaps = is_match && distance < length_of(mine);
                if (lanes_where(overlaps)) {
                    ordinal = overlaps ? ordinal % distance : ordinal;
                }
                from += ordinal;
                u32 copied = from < written ? BYTE_OF_MEMORY + (written - 1 - from) : BYTE_OF_GROUP + (from - written);
                byte = is_match ? copied : byte;
                // A byte that refers to another reference takes over its source, which halves the
                // length of the chains each time.
                while (lanes_where(byte >= BYTE_OF_GROUP)) {
                    u32 other = shuffle(byte, byte);
                    byte = byte >= BYTE_OF_GROUP ? other : byte;
                }
            }
            put(byte, part);
        }
        return INFLATE_DONE;
    }

    // Copies the bytes of a stored block from the input.
    PORTABLE bool copy_in(u64 from, u32 length) {
        store_held();
        if (length > room - written) {
            return false;
        }
        for (u32 i = lane(); i < length; i += WIDTH) {
            store(base + written + i, load<u8>(from + i));
        }
        written += length;
        warp_barrier();
        return true;
    }
};
