// The output of a deflate stream, which a warp writes.
#pragma once

#include "inflate_codes.cuh"
#include "memory.cuh"

// A group has one byte per lane. The sources of this many groups are looked up together, so that
// the warp waits once for their loads.
constexpr u32 GROUPS = 4;

// The groups whose symbol starts are computed at a time.
constexpr u32 GROUPS_KNOWN = WIDTH < GROUPS ? GROUPS : WIDTH;

// Bytes that a warp keeps in shared memory, for near matches. More bytes would leave room for fewer
// warps.
constexpr u32 RECENT = 4096;

// The source of an output byte: below 256, its value; from BYTE_OF_RECENT on, the recent byte with
// this index; from BYTE_OF_GROUP on, the byte with this index in its own group.
constexpr u32 BYTE_OF_RECENT = 256;
constexpr u32 BYTE_OF_GROUP = 1u << 30;

// A symbol is the value of a literal, or this bit with a match's length and, in the lower half, its
// distance less 1. The other bit means that the match is longer than its distance, and repeats
// itself.
constexpr u32 MATCH = 1u << 31;
constexpr u32 REPEATS = 1u << 30;

PORTABLE u32 match_of(u32 length, u32 distance) {
    return MATCH | (length > distance ? REPEATS : 0) | length << 16 | ((distance - 1) & 0xffff);
}
PORTABLE u32 length_of(u32 symbol) {
    return symbol & MATCH ? symbol >> 16 & 0x1ff : 1;
}
PORTABLE u32 distance_of(u32 symbol) {
    return (symbol & 0xffff) + 1;
}

// The part of an output in the shared memory of a warp.
struct OutputShared {
    // The byte with this index modulo RECENT.
    u8 recent[RECENT];
    // For each of the next groups, a bit for each of its bytes: whether a symbol begins there.
    u32 begins[GROUPS_KNOWN];
};

struct InflateOutput {
    u64 base;
    u32 room;
    u32 written = 0;
    OutputShared &shared;

    PORTABLE InflateOutput(u64 base, u32 room, OutputShared &shared) : base(base), room(room), shared(shared) {}

    // Writes the bytes of the symbols of the first `count` lanes, at least one.
    PORTABLE InflateStatus symbols(u32 symbol, u32 count) {
        if (!lanes_where(lane() < count && symbol & MATCH)) {
            if (count > room - written) {
                return INFLATE_TOO_LONG;
            }
            put(symbol, count);
            return INFLATE_DONE;
        }
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
        u32 begun = 0;
        for (u32 done = 0; done < total; done += GROUPS * WIDTH) {
            if (done % (GROUPS_KNOWN * WIDTH) == 0) {
                find_begins(start - done, lane() < count);
            }
            u32 mine[GROUPS];
            u32 ordinals[GROUPS];
            for (u32 i = 0; i < GROUPS; i++) {
                u32 mask = shared.begins[(done / WIDTH + i) % GROUPS_KNOWN];
                // The lane with the symbol of this lane's byte.
                u32 owner = begun + ones(mask & lanes_up_to_mine()) - 1;
                begun += ones(mask);
                mine[i] = shuffle(symbol, owner);
                ordinals[i] = done + i * WIDTH + lane() - shuffle(start, owner);
            }
            u32 sources[GROUPS];
            find_sources(mine, ordinals, sources);
            for (u32 i = 0; i < GROUPS && done + i * WIDTH < total; i++) {
                u32 left = total - done - i * WIDTH;
                put(value_of_source(sources[i]), left < WIDTH ? left : WIDTH);
            }
        }
        return INFLATE_DONE;
    }

    // Copies the bytes of a stored block from the input.
    PORTABLE bool copy_in(u64 from, u32 length) {
        if (length > room - written) {
            return false;
        }
        for (u32 i = lane(); i < length; i += WIDTH) {
            u8 byte = load<u8>(from + i);
            store(base + written + i, byte);
            shared.recent[(written + i) % RECENT] = byte;
        }
        written += length;
        warp_barrier();
        return true;
    }

    // Finds where symbols begin in the next groups. `start` counts from the first of them, modulo 2^32,
    // and is this lane's if it has a symbol.
    PORTABLE void find_begins(u32 start, bool has_symbol) {
        warp_barrier();
        for (u32 i = lane(); i < GROUPS_KNOWN; i += WIDTH) {
            shared.begins[i] = 0;
        }
        warp_barrier();
        if (has_symbol && start < GROUPS_KNOWN * WIDTH) {
            add_shared(shared.begins[start / WIDTH], 1u << start % WIDTH);
        }
        warp_barrier();
    }

    // Finds the sources of this lane's bytes in the next groups, each of which is the byte of its symbol
    // with its ordinal. Bytes after the last symbol have a source, too, which is not used.
    PORTABLE void find_sources(const u32 (&symbol)[GROUPS], const u32 (&ordinal)[GROUPS], u32 (&source)[GROUPS]) const {
        u32 from[GROUPS];
        u32 kinds = 0;
        for (u32 i = 0; i < GROUPS; i++) {
            from[i] = written + i * WIDTH + lane() - distance_of(symbol[i]);
            kinds |= symbol[i];
        }
        if (lanes_where(kinds & REPEATS)) {
            for (u32 i = 0; i < GROUPS; i++) {
                u32 again = ordinal[i] - ordinal[i] % distance_of(symbol[i]);
                from[i] -= symbol[i] & REPEATS ? again : 0;
            }
        }
        bool is_old[GROUPS];
        bool any_old = false;
        for (u32 i = 0; i < GROUPS; i++) {
            u32 group = written + i * WIDTH;
            u32 copied = from[i] < group ? BYTE_OF_RECENT + from[i] % RECENT : BYTE_OF_GROUP + (from[i] - group);
            source[i] = symbol[i] & MATCH ? copied : symbol[i];
            // Older bytes have been stored, and may be replaced in shared memory before they are needed.
            is_old[i] = symbol[i] & MATCH && from[i] < written && written - from[i] > RECENT - GROUPS * WIDTH;
            any_old |= is_old[i];
        }
        if (lanes_where(any_old)) {
            for (u32 i = 0; i < GROUPS; i++) {
                if (is_old[i]) {
                    source[i] = load<u8>(base + from[i]);
                }
            }
        }
    }

    // The value of this lane's byte of the next group.
    PORTABLE u32 value_of_source(u32 source) const {
        // A byte that refers to another reference takes over the source of that reference, which
        // halves the length of the chains each time.
        while (lanes_where(source >= BYTE_OF_GROUP)) {
            u32 other = shuffle(source, source);
            source = source >= BYTE_OF_GROUP ? other : source;
        }
        return source < BYTE_OF_RECENT ? source : shared.recent[source - BYTE_OF_RECENT];
    }

    // Writes the bytes of the first `count` lanes, for which there is room.
    PORTABLE void put(u32 byte, u32 count) {
        // All lanes have read the bytes that are replaced here.
        warp_barrier();
        if (lane() < count) {
            store(base + written + lane(), static_cast<u8>(byte));
            shared.recent[(written + lane()) % RECENT] = static_cast<u8>(byte);
        }
        written += count;
        warp_barrier();
    }
};
