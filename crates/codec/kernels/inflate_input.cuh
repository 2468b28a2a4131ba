// The bits of a deflate stream, which a warp reads.
#pragma once

#include "memory.cuh"

// Words of a stream in the warp's shared memory, and words loaded at a time.
constexpr u32 INPUT_WORDS = 64;
constexpr u32 INPUT_STEP = 32;
// Words that `ready` makes available from the next bit on.
constexpr u32 INPUT_READY = 12;

struct InflateInput {
    // The stream begins `lead` bytes after `base`, which is aligned, and ends `end` bytes after it.
    u64 base;
    u32 lead;
    u64 end;
    // The next bit, counted from `base`.
    u64 at;
    // Words loaded so far; the last `INPUT_WORDS` of them are in the ring.
    u32 loaded;
    u32 *ring;
    // This lane's words of the next step, loaded before they are needed.
    u32 ahead[INPUT_STEP / WIDTH];

    PORTABLE InflateInput(u64 address, u32 length, u32 *ring) : ring(ring) {
        base = address & ~u64{3};
        lead = static_cast<u32>(address & 3);
        end = u64{lead} + length;
        seek(u64{lead} * 8);
    }

    // A word of the stream. Bytes outside the stream are zero.
    PORTABLE u32 word(u64 number) const {
        u64 first = number * 4;
        if (first >= lead && first + 4 <= end) {
            return load<u32>(base + first);
        }
        u32 word = 0;
        for (u32 i = 0; i < 4; i++) {
            if (first + i >= lead && first + i < end) {
                word |= u32{load<u8>(base + first + i)} << (8 * i);
            }
        }
        return word;
    }

    PORTABLE void look_ahead() {
        for (u32 i = 0; i < INPUT_STEP / WIDTH; i++) {
            ahead[i] = word(u64{loaded} + lane() + i * WIDTH);
        }
    }

    PORTABLE void load_step() {
        warp_barrier();
        for (u32 i = 0; i < INPUT_STEP / WIDTH; i++) {
            ring[(loaded + lane() + i * WIDTH) % INPUT_WORDS] = ahead[i];
        }
        loaded += INPUT_STEP;
        look_ahead();
        warp_barrier();
    }

    PORTABLE void seek(u64 bit) {
        at = bit;
        loaded = static_cast<u32>(bit / 32) / INPUT_STEP * INPUT_STEP;
        look_ahead();
        load_step();
        load_step();
    }

    // Must be called after `at` has advanced, which must be by less than `INPUT_STEP` words.
    PORTABLE void ready() {
        if (static_cast<u32>(at / 32) + INPUT_READY > loaded) {
            load_step();
        }
    }

    PORTABLE bool is_over() const {
        return at > end * 8;
    }

    // 64 bits, beginning `behind` bits after the next one.
    PORTABLE u64 look(u32 behind) const {
        u64 place = at + behind;
        u32 number = static_cast<u32>(place / 32);
        u32 shift = static_cast<u32>(place % 32);
        u32 first = ring[number % INPUT_WORDS];
        u32 second = ring[(number + 1) % INPUT_WORDS];
        u32 third = ring[(number + 2) % INPUT_WORDS];
        u64 low = (u64{second} << 32 | first) >> shift;
        u64 high = (u64{third} << 32 | second) >> shift;
        return high << 32 | static_cast<u32>(low);
    }

    // Takes at most 16 bits.
    PORTABLE u32 take(u32 wanted) {
        ready();
        u32 taken = static_cast<u32>(look(0)) & ((1u << wanted) - 1);
        at += wanted;
        return taken;
    }
};
