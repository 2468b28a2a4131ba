// The prefix codes of a deflate block, as tables in the shared memory of a warp.
#pragma once

#include "memory.cuh"

// Warps of a block; each has tables of its own.
constexpr u32 INFLATE_WARPS = 2;

// gpu/inflate.rs declares the same values.
enum InflateStatus : u32 {
    INFLATE_DONE,
    INFLATE_TRUNCATED,
    INFLATE_BAD_BLOCK,
    INFLATE_BAD_STORED,
    INFLATE_BAD_CODES,
    INFLATE_BAD_SYMBOL,
    INFLATE_BAD_DISTANCE,
    INFLATE_TOO_LONG,
    INFLATE_TOO_SHORT,
};

// Bits that index the tables. Longer codes are found by a search.
constexpr u32 LITERAL_BITS = 10;
constexpr u32 DISTANCE_BITS = 8;
// The longest code in the code of code lengths, whose table shares the memory of `distances`.
constexpr u32 SIZE_BITS = 7;
constexpr u32 LONGEST_CODE = 15;

// The kind of a table entry, in bits 25 and up. Distances and code lengths are LITERAL, too.
enum InflateKind : u32 { LITERAL, LENGTH, END, LONG, INVALID };

// Bits 0 to 4 are the number of bits of the code and of the extra bits that follow it, 5 to 8 that of
// the code alone, and 9 to 24 the value to which the extra bits are added.
PORTABLE u32 entry_of(InflateKind kind, u32 value, u32 extra, u32 length) {
    return kind << 25 | value << 9 | length << 5 | (length + extra);
}
PORTABLE u32 kind_of(u32 entry) {
    return entry >> 25;
}
// The bits of the code and of its extra bits.
PORTABLE u32 bits_of(u32 entry) {
    return entry & 31;
}
// The value of an entry whose code begins at the first of these bits.
PORTABLE u32 value_of(u32 entry, u32 bits) {
    u32 code = entry >> 5 & 15;
    u32 extra = (bits & ((1u << bits_of(entry)) - 1)) >> code;
    return (entry >> 9 & 0xffff) + extra;
}

PORTABLE u32 literal_entry(u32 symbol, u32 length) {
    if (symbol < 256) {
        return entry_of(LITERAL, symbol, 0, length);
    }
    if (symbol == 256) {
        return entry_of(END, 0, 0, length);
    }
    u32 number = symbol - 257;
    if (number < 8) {
        return entry_of(LENGTH, 3 + number, 0, length);
    }
    if (number < 28) {
        u32 extra = number / 4 - 1;
        return entry_of(LENGTH, 3 + ((4 + number % 4) << extra), extra, length);
    }
    return number == 28 ? entry_of(LENGTH, 258, 0, length) : entry_of(INVALID, 0, 0, length);
}

PORTABLE u32 distance_entry(u32 symbol, u32 length) {
    if (symbol < 4) {
        return entry_of(LITERAL, 1 + symbol, 0, length);
    }
    u32 extra = symbol / 2 - 1;
    return symbol < 30 ? entry_of(LITERAL, 1 + ((2 + symbol % 2) << extra), extra, length)
                       : entry_of(INVALID, 0, 0, length);
}

// A canonical prefix code, described by its codes of each length.
struct CanonicalCode {
    // The code after the last one of a length, left-aligned to 15 bits.
    u16 limit[LONGEST_CODE + 1];
    // The index of a code's symbol less the code, modulo 65536.
    u16 base[LONGEST_CODE + 1];
    u16 count[LONGEST_CODE + 1];
    // While symbols are sorted: the place of the next one of a length.
    u16 next[LONGEST_CODE + 1];
};

struct InflateCodes {
    union {
        u32 literals[1 << LITERAL_BITS];
        // The lengths of all codes, until the tables are built.
        u8 lengths[288 + 32];
    };
    u32 distances[1 << DISTANCE_BITS];
    // Symbols in code order: literals and lengths, then from 288 on distances.
    u16 symbols[288 + 32];
    CanonicalCode literal_code;
    CanonicalCode distance_code;

    // Sorts the symbols whose lengths begin at `from` by their codes and stores them from `place`
    // on. Returns false if the code is oversubscribed or incomplete. With `sparse`, a single code
    // of one bit, or no code at all, counts as complete.
    PORTABLE bool sort(CanonicalCode &code, u32 from, u32 symbols_count, u32 place, bool sparse) {
        for (u32 length = lane(); length <= LONGEST_CODE; length += WIDTH) {
            code.count[length] = 0;
        }
        warp_barrier();
        for (u32 first = 0; first < symbols_count; first += WIDTH) {
            take_places(code.count, from, first + lane(), symbols_count);
        }
        u32 first = 0;
        u32 used = 0;
        bool over = false;
        for (u32 length = 1; length <= LONGEST_CODE; length++) {
            u32 count = code.count[length];
            first <<= 1;
            over |= first + count > 1u << length;
            // Stops at an oversubscribed length, so that no value overflows its type.
            if (over) {
                break;
            }
            if ((length - 1) % WIDTH == lane()) {
                code.limit[length] = static_cast<u16>((first + count) << (LONGEST_CODE - length));
                code.base[length] = static_cast<u16>(place + used - first);
                code.next[length] = static_cast<u16>(place + used);
            }
            first += count;
            used += count;
        }
        warp_barrier();
        bool complete = first == 1u << LONGEST_CODE;
        bool single = used == 0 || (used == 1 && code.count[1] == 1);
        if (over || !(complete || (sparse && single))) {
            return false;
        }
        for (u32 first = 0; first < symbols_count; first += WIDTH) {
            u32 symbol = first + lane();
            u32 at = take_places(code.next, from, symbol, symbols_count);
            if (at != 0xffff) {
                symbols[at] = static_cast<u16>(symbol);
            }
        }
        warp_barrier();
        return true;
    }

    // Assigns to each lane's symbol the next place of its length, in the order of the lanes.
    // Returns 0xffff if the symbol has no code or does not exist.
    PORTABLE u32 take_places(u16 *next, u32 from, u32 symbol, u32 symbols_count) {
        u32 length = symbol < symbols_count ? lengths[from + symbol] : 0;
        u32 alike = lanes_with(length);
        u32 ordinal = ones(alike & lanes_up_to_mine()) - 1;
        u32 place = length > 0 ? next[length] + ordinal : 0xffff;
        warp_barrier();
        if (ordinal == 0 && length > 0) {
            next[length] = static_cast<u16>(place + ones(alike));
        }
        warp_barrier();
        return place;
    }

    // The place of the symbol whose code of this length is at the top of 15 bits.
    PORTABLE static u32 symbol_place(const CanonicalCode &code, u32 top, u32 length) {
        return (code.base[length] + (top >> (LONGEST_CODE - length))) & 0xffff;
    }

    // Finds the code at the top of 15 bits if it has from `least` to `most` bits. Returns its
    // length in bits 0 to 3 and its symbol above, or 0 if no code matches.
    PORTABLE u32 find(const CanonicalCode &code, u32 top, u32 least, u32 most) const {
        for (u32 length = least; length <= most; length++) {
            if (top < code.limit[length]) {
                return u32{symbols[symbol_place(code, top, length)]} << 4 | length;
            }
        }
        return 0;
    }

    template <bool DISTANCES, u32 BITS> PORTABLE void fill(u32 *table, const CanonicalCode &code) {
        u32 limits[BITS];
        for (u32 i = 0; i < BITS; i++) {
            limits[i] = code.limit[1 + i];
        }
        const u32 end = code.limit[LONGEST_CODE];
        for (u32 i = lane(); i < 1u << BITS; i += WIDTH) {
            u32 top = reversed(i) >> (32 - LONGEST_CODE);
            // Limits do not decrease.
            u32 length = 1;
            for (u32 limit : limits) {
                length += top >= limit;
            }
            if (length > BITS) {
                table[i] = entry_of(top < end ? LONG : INVALID, 0, 0, 0);
                continue;
            }
            u32 symbol = symbols[symbol_place(code, top, length)];
            table[i] = DISTANCES ? distance_entry(symbol, length) : literal_entry(symbol, length);
        }
    }

    // Builds the code of code lengths from the first 19 lengths.
    PORTABLE bool build_sizes() {
        if (!sort(distance_code, 0, 19, 288, false)) {
            return false;
        }
        fill<false, SIZE_BITS>(distances, distance_code);
        warp_barrier();
        return true;
    }

    // Builds both codes from the lengths of the literals, followed by those of the distances.
    PORTABLE InflateStatus build(u32 literals_count, u32 distances_count) {
        if (!sort(literal_code, 0, literals_count, 0, true)) {
            return INFLATE_BAD_CODES;
        }
        if (!sort(distance_code, literals_count, distances_count, 288, true)) {
            return INFLATE_BAD_CODES;
        }
        fill<false, LITERAL_BITS>(literals, literal_code);
        fill<true, DISTANCE_BITS>(distances, distance_code);
        warp_barrier();
        return INFLATE_DONE;
    }

    PORTABLE u32 long_literal(u64 bits) const {
        u32 top = reversed(static_cast<u32>(bits)) >> (32 - LONGEST_CODE);
        u32 found = find(literal_code, top, LITERAL_BITS + 1, LONGEST_CODE);
        return found == 0 ? entry_of(INVALID, 0, 0, 0) : literal_entry(found >> 4, found & 15);
    }

    PORTABLE u32 long_distance(u64 bits) const {
        u32 top = reversed(static_cast<u32>(bits)) >> (32 - LONGEST_CODE);
        u32 found = find(distance_code, top, DISTANCE_BITS + 1, LONGEST_CODE);
        return found == 0 ? entry_of(INVALID, 0, 0, 0) : distance_entry(found >> 4, found & 15);
    }
};
