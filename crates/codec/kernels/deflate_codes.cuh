// Prefix codes for a deflate block (RFC 1951, section 3.2.2), built by a warp in shared memory.
#pragma once

#include "deflate_format.cuh"

constexpr u32 LONGEST_BLOCK_CODE = 15;
constexpr u32 LONGEST_SIZE_CODE = 7;

// Memory for building a code.
struct CodeWork {
    // The used symbols by increasing frequency.
    u16 sorted[LITERAL_SYMBOLS];
    // Their weights, then the parents and depths of the tree.
    u32 tree[LITERAL_SYMBOLS];
    // The number of codes of each length.
    u32 lengths[LONGEST_BLOCK_CODE + 1];
};

// Sorts the used symbols, and returns their number.
PORTABLE u32 sort_symbols(const u32 *frequencies, u32 symbols, CodeWork &work) {
    u32 used = 0;
    for (u32 symbol = lane(); symbol < symbols; symbol += WIDTH) {
        u32 frequency = frequencies[symbol];
        if (frequency == 0) {
            continue;
        }
        used++;
        u32 rank = 0;
        for (u32 other = 0; other < symbols; other++) {
            u32 its = frequencies[other];
            bool is_before = its < frequency || (its == frequency && other < symbol);
            rank += its != 0 && is_before;
        }
        work.sorted[rank] = static_cast<u16>(symbol);
        work.tree[rank] = frequency;
    }
    warp_barrier();
    return sums_over_lanes(used).all;
}

// Counts the codes of each length of an optimal code by the in-place algorithm of Moffat and
// Katajainen (1995) for sorted weights. One lane calls it.
PORTABLE void count_lengths(u32 used, u32 limit, CodeWork &work) {
    u32 *tree = work.tree;
    // First, each entry before `next` is an internal node, and is replaced by its parent once it has
    // one.
    u32 root = 0;
    u32 leaf = 0;
    for (u32 next = 0; next + 1 < used; next++) {
        u32 weight = 0;
        for (u32 child = 0; child < 2; child++) {
            if (leaf >= used || (root < next && tree[root] < tree[leaf])) {
                weight += tree[root];
                tree[root++] = next;
            } else {
                weight += tree[leaf++];
            }
        }
        tree[next] = weight;
    }
    // Then parents become depths.
    tree[used - 2] = 0;
    for (u32 next = used - 2; next-- > 0;) {
        tree[next] = tree[tree[next]] + 1;
    }
    // The nodes of a level that are not internal are leaves. Leaves below the limit move up to it.
    u32 available = 1;
    u32 node = used - 1;
    for (u32 depth = 0; available > 0; depth++) {
        u32 internal = 0;
        while (node > 0 && tree[node - 1] == depth) {
            internal++;
            node--;
        }
        work.lengths[depth < limit ? depth : limit] += available - internal;
        available = 2 * internal;
    }
    // One code too many of the limit's length is removed by lengthening the longest shorter code.
    u32 taken = 0;
    for (u32 length = 1; length <= limit; length++) {
        taken += work.lengths[length] << (limit - length);
    }
    for (; taken > 1u << limit; taken--) {
        u32 length = limit - 1;
        while (work.lengths[length] == 0) {
            length--;
        }
        work.lengths[length]--;
        work.lengths[length + 1] += 2;
        work.lengths[limit]--;
    }
}

// Writes the canonical code of these lengths, first bit lowest. One lane calls it.
PORTABLE void assign_codes(const u8 *lengths, u32 symbols, u16 *codes) {
    u32 next[LONGEST_BLOCK_CODE + 2] = {};
    for (u32 symbol = 0; symbol < symbols; symbol++) {
        next[lengths[symbol] + 1]++;
    }
    next[1] = 0;
    for (u32 length = 1; length <= LONGEST_BLOCK_CODE; length++) {
        next[length + 1] = (next[length] + next[length + 1]) << 1;
    }
    for (u32 symbol = 0; symbol < symbols; symbol++) {
        u32 length = lengths[symbol];
        if (length > 0) {
            codes[symbol] = static_cast<u16>(reversed(next[length]++) >> (32 - length));
        }
    }
}

// Builds an optimal code of at most `limit` bits for the symbols that occur. A code has at least
// two symbols, because decoders differ in how they treat smaller codes.
OUT_OF_LINE void build_code(
    u32 *frequencies, u32 symbols, u32 limit, u8 *lengths, u16 *codes, CodeWork &work
) {
    for (u32 symbol = lane(); symbol < symbols; symbol += WIDTH) {
        lengths[symbol] = 0;
    }
    for (u32 length = lane(); length <= LONGEST_BLOCK_CODE; length += WIDTH) {
        work.lengths[length] = 0;
    }
    warp_barrier();
    if (lane() == 0) {
        u32 used = 0;
        for (u32 symbol = 0; symbol < symbols && used < 2; symbol++) {
            used += frequencies[symbol] > 0;
        }
        for (u32 symbol = 0; used < 2; symbol++) {
            if (frequencies[symbol] == 0) {
                frequencies[symbol] = 1;
                used++;
            }
        }
    }
    warp_barrier();
    u32 used = sort_symbols(frequencies, symbols, work);
    if (lane() == 0) {
        count_lengths(used, limit, work);
        // The least frequent symbols get the longest codes.
        u32 rank = 0;
        for (u32 length = limit; length > 0; length--) {
            for (u32 left = work.lengths[length]; left > 0; left--) {
                lengths[work.sorted[rank++]] = static_cast<u8>(length);
            }
        }
        assign_codes(lengths, symbols, codes);
    }
    warp_barrier();
}
