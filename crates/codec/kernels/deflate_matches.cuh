// Finds matches for the deflate encoder: at each byte, earlier bytes that are equal.
#pragma once

#include "deflate_format.cuh"

// Tables of positions, by the hash of the three bytes there and by that of six. The first finds
// short, near matches, the second long ones.
constexpr u32 HASH_BITS = 12;
constexpr u32 TABLE_ENTRIES = 2u << HASH_BITS;
// The bytes that are read for both hashes.
constexpr u32 HASHED = 8;

// The cost of an item, in units of 1/16 bit.
constexpr u32 BIT = 16;
// The codes of a length and of a distance together.
constexpr u32 MATCH_COST = 8 * BIT;

// A part of a chunk that is encoded as a block of its own. Its matches may begin in the preceding
// bytes, which the decoder has.
struct Segment {
    // The address of the chunk, a multiple of 8, and its length. Sixteen bytes after its end can be
    // read.
    u64 chunk;
    u64 chunk_length;
    u64 begin;
    u32 length;
};

struct Match {
    u32 length;
    u32 distance;
    // The bits that it saves, compared with literals.
    i32 saved;
};

// Reads eight bytes at a time from any offset on, of memory at a multiple of 8.
struct Eights {
    u64 address;
    u32 shift;
    u64 word;

    PORTABLE Eights(u64 chunk, u64 offset)
        : address(chunk + offset / 8 * 8), shift(8 * static_cast<u32>(offset % 8)), word(load<u64>(address)) {}

    PORTABLE u64 next() {
        address += 8;
        u64 after = load<u64>(address);
        u64 eight = shift == 0 ? word : word >> shift | after << (64 - shift);
        word = after;
        return eight;
    }
};

// The indices in the table for a position.
struct Hashes {
    u32 near;
    u32 far;
};

PORTABLE Hashes hashes_at(u64 chunk, u64 offset) {
    u64 bytes = Eights(chunk, offset).next();
    u32 low = static_cast<u32>(bytes);
    u32 high = static_cast<u32>(bytes >> 32);
    u32 three = (low << 8) * 2654435761u;
    u32 six = low * 2654435761u ^ (high << 16) * 2246822519u;
    return {three >> (32 - HASH_BITS), six >> (32 - HASH_BITS) | 1u << HASH_BITS};
}

// About 16 times the binary logarithm of a value that is not 0.
PORTABLE u32 logarithm(u32 value) {
    u32 whole = highest_bit(value);
    return BIT * whole + ((BIT * value >> whole) & (BIT - 1));
}

struct MatchFinder {
    Segment segment;
    // The offset in the chunk of position 0 of the table.
    u64 window;
    // In shared memory, of TABLE_ENTRIES. An entry of 0 is empty.
    u16 *table;
    // The average cost of a literal of this segment.
    u32 literal;

    PORTABLE MatchFinder(const Segment &segment, u16 *table, u32 literal)
        : segment(segment), window(0), table(table), literal(literal) {
        if (segment.begin > LARGEST_DISTANCE) {
            window = segment.begin - LARGEST_DISTANCE;
        }
        for (u32 i = lane(); i < TABLE_ENTRIES; i += WIDTH) {
            table[i] = 0;
        }
        warp_barrier();
        for (u64 at = window + lane(); at < segment.begin; at += WIDTH) {
            insert(at);
        }
        warp_barrier();
    }

    PORTABLE u64 end() const {
        return segment.begin + segment.length;
    }

    PORTABLE void insert(u64 at) {
        if (at + HASHED <= segment.chunk_length) {
            Hashes hashes = hashes_at(segment.chunk, at);
            table[hashes.near] = static_cast<u16>(at - window);
            table[hashes.far] = static_cast<u16>(at - window);
        }
    }

    // The number of equal bytes at `at` and `distance` before it.
    PORTABLE u32 equal_bytes(u64 at, u32 distance, u32 most) const {
        Eights here(segment.chunk, at);
        Eights there(segment.chunk, at - distance);
        u32 length = 0;
        while (length < most) {
            u64 other = here.next() ^ there.next();
            if (other != 0) {
                length += trailing_zeros(other) / 8;
                break;
            }
            length += 8;
        }
        return length < most ? length : most;
    }

    // The best match at a position of the segment. `recent` is the distance of the previous match,
    // and `promising` another distance to try; 0 means no distance.
    PORTABLE Match find(u64 at, u32 recent, u32 promising) const {
        Match best = {0, 0, 0};
        u64 left = end() - at;
        u32 most = left < LONGEST_MATCH ? static_cast<u32>(left) : LONGEST_MATCH;
        u32 near = 0;
        u32 far = 0;
        if (at + HASHED <= segment.chunk_length) {
            Hashes hashes = hashes_at(segment.chunk, at);
            near = table[hashes.near];
            far = table[hashes.far];
        }
        // One loop, so that lanes with candidates of different kinds do not diverge. Distances that
        // take few bits come first.
        for (u32 kind = 0; kind < 5; kind++) {
            u32 entry = kind == 3 ? near : far;
            u64 apart = kind == 0 ? recent
                : kind == 1       ? 1
                : kind == 2       ? (promising != recent ? promising : 0)
                : entry == 0      ? 0
                                  : at - (window + entry);
            if (apart == 0 || apart > LARGEST_DISTANCE || apart > at || best.length == most) {
                continue;
            }
            u32 distance = static_cast<u32>(apart);
            u32 length = equal_bytes(at, distance, most);
            u32 extra_bits = distance > 4 ? highest_bit(distance) - 1 : 0;
            i32 saved = static_cast<i32>(length * literal) - static_cast<i32>(MATCH_COST + extra_bits * BIT);
            if (length >= SHORTEST_MATCH && saved > best.saved) {
                best = {length, distance, saved};
            }
        }
        return best;
    }
};
