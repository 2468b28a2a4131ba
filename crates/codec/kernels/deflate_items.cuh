// Divides a segment into literals and matches.
#pragma once

#include "deflate_block.cuh"

// The average cost of the literals of a segment, from the frequency of each byte in it.
PORTABLE u32 cost_of_literals(const Segment &segment, u32 *frequencies) {
    for (u32 i = lane(); i < 256; i += WIDTH) {
        frequencies[i] = 0;
    }
    warp_barrier();
    for (u32 i = 8 * lane(); i < segment.length; i += 8 * WIDTH) {
        u64 bytes = load<u64>(segment.chunk + segment.begin + i);
        for (u32 number = 0; number < 8 && i + number < segment.length; number++) {
            add_shared(frequencies[bytes >> (8 * number) & 0xff], 1);
        }
    }
    warp_barrier();
    u32 all = 0;
    for (u32 i = lane(); i < 256; i += WIDTH) {
        u32 times = frequencies[i];
        // At most 32768 times 8 bits.
        all += times > 0 ? times * (logarithm(segment.length) - logarithm(times)) : 0;
    }
    u32 average = sums_over_lanes(all).all / segment.length;
    warp_barrier();
    // A code takes at least one bit.
    return average > BIT ? average : BIT;
}

// The lanes that begin an item, as a mask with a bit for each lane: lane `first` begins one, and
// each item ends after `covered` lanes. Every round doubles the number of items that a lane
// follows.
PORTABLE u32 begins_from(u32 first, u32 covered) {
    u32 begins = 1u << lane();
    u32 after = lane() + covered;
    for (u32 items = 1; items < WIDTH; items *= 2) {
        u32 further = shuffle(begins, after);
        u32 end = shuffle(after, after);
        if (after < WIDTH) {
            begins |= further;
            after = end;
        }
    }
    return shuffle(begins, first);
}

// The distance of the match of any lane that saves the most; `otherwise` if no lane has a match.
PORTABLE u32 distance_of_best(const Match &match, u32 otherwise) {
    u32 most = static_cast<u32>(match.saved);
    for (u32 apart = 1; apart < WIDTH; apart *= 2) {
        u32 other = shuffle(most, lane() ^ apart);
        most = other > most ? other : most;
    }
    u32 best = lanes_where(static_cast<u32>(match.saved) == most);
    u32 distance = shuffle(match.distance, trailing_zeros(best));
    return most > 0 ? distance : otherwise;
}

// Lists the items of a segment and counts their symbols. Returns the number of items.
PORTABLE u32 list_items(const Segment &segment, u64 items, DeflateShared &shared) {
    u32 literal = cost_of_literals(segment, shared.frequencies);
    for (u32 i = lane(); i < BLOCK_SYMBOLS; i += WIDTH) {
        shared.frequencies[i] = i == END_OF_BLOCK;
    }
    MatchFinder finder(segment, shared.table, literal);
    u32 count = 0;
    // Elements of four and of eight bytes often share bytes with the preceding element.
    u32 recent = 4;
    // Within a run of equal bytes, lanes find only the run itself. At its end, a lane may find the
    // row of an image above, whose distance also suits the following bytes.
    u32 promising = 8;
    // The first byte that no item covers.
    u64 next = segment.begin;
    for (u64 tile = segment.begin; tile < finder.end(); tile += WIDTH) {
        u64 at = tile + lane();
        Match match = {0, 0, 0};
        bool is_inside = at < finder.end();
        if (is_inside && at >= next) {
            match = finder.find(at, recent, promising);
        }
        warp_barrier();
        if (is_inside) {
            finder.insert(at);
        }
        promising = distance_of_best(match, promising);
        // A literal is better here, because the match at the next byte saves more.
        u32 saved_after = shuffle(static_cast<u32>(match.saved), lane() + 1);
        if (lane() + 1 < WIDTH && static_cast<i32>(saved_after) > match.saved) {
            match.length = 0;
        }
        u32 begins = 0;
        if (next < tile + WIDTH) {
            u32 covered = is_inside ? (match.length > 0 ? match.length : 1) : WIDTH;
            begins = begins_from(static_cast<u32>(next - tile), covered);
            // Lanes after the end begin no item.
            u64 left = finder.end() - tile;
            begins &= left < WIDTH ? (1u << left) - 1 : ~0u;
            u32 last = highest_bit(begins);
            next = tile + last + shuffle(covered, last);
        }
        bool is_mine = (begins >> lane() & 1) != 0;
        u32 length = is_mine ? match.length : 0;
        u32 mine = is_mine ? (length > 0 ? 2 : 1) : 0;
        LaneSums sums = sums_over_lanes(mine);
        u64 to = items + 2ull * (count + sums.before);
        if (length > 0) {
            u32 first = item_of_length(length);
            u32 second = item_of_distance(match.distance);
            store(to, static_cast<u16>(first));
            store(to + 2, static_cast<u16>(second));
            add_shared(shared.frequencies[symbol_of_item(first).symbol], 1);
            add_shared(shared.frequencies[symbol_of_item(second).symbol], 1);
        } else if (is_mine) {
            u32 byte = load<u8>(segment.chunk + at);
            store(to, static_cast<u16>(byte));
            add_shared(shared.frequencies[byte], 1);
        }
        count += sums.all;
        u32 matched = lanes_where(length > 0);
        if (matched != 0) {
            recent = shuffle(match.distance, highest_bit(matched));
        }
        warp_barrier();
    }
    return count;
}
