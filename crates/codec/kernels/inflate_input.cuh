// The bits of a deflate stream, read by a warp.
#pragma once

#include "memory.cuh"

// Words of the stretch after the current one that are taken before it becomes the current one. So
// the current one still has all bits that are not dropped, where many are looked at together.
constexpr u32 WORDS_AHEAD = WIDTH > 1 ? 2 : 0;

struct InflateInput {
    // The stream begins `lead` bytes behind `base`, which is aligned, and ends `end` bytes behind it.
    u64 base;
    u32 lead;
    u64 end;
    // Bits not dropped yet, the next one lowest; zeros above.
    u64 bits;
    u32 count;
    // Of the stretch of words, one a lane, that `here` has; `ahead` has those after it.
    u32 stretch;
    // The next word to take, from the beginning of the stretch.
    u32 next;
    u32 here;
    u32 ahead;
    // Words that have a byte of the stream.
    u32 words;

    PORTABLE InflateInput(u64 address, u32 length) {
        base = address & ~u64{3};
        lead = static_cast<u32>(address & 3);
        end = u64{lead} + length;
        words = static_cast<u32>((end + 3) / 4);
        seek(u64{lead} * 8);
    }

    // Zeros stand for bytes behind the end.
    PORTABLE u32 word(u64 number) const {
        u64 at = number * 4;
        if (at >= lead && at + 4 <= end) {
            return load<u32>(base + at);
        }
        u32 word = 0;
        for (u32 i = 0; i < 4; i++) {
            if (at + i >= lead && at + i < end) {
                word |= u32{load<u8>(base + at + i)} << (8 * i);
            }
        }
        return word;
    }

    // Goes on at a bit, counted from `base`. It is at the end at most.
    PORTABLE void seek(u64 bit) {
        u64 number = bit / 32;
        stretch = static_cast<u32>(number / WIDTH * WIDTH);
        next = static_cast<u32>(number % WIDTH);
        here = word(u64{stretch} + lane());
        ahead = word(u64{stretch} + WIDTH + lane());
        bits = 0;
        count = 0;
        refill();
        drop(static_cast<u32>(bit % 32));
    }

    PORTABLE void advance() {
        here = ahead;
        stretch += WIDTH;
        next -= WIDTH;
        ahead = word(u64{stretch} + WIDTH + lane());
    }

    // Makes at least 32 bits ready, zeros where the stream has come to its end. False once it is so
    // far behind that more has been dropped than there was.
    PORTABLE bool refill() {
        if (count < 32) {
            if (next == WIDTH + WORDS_AHEAD) {
                if (u64{stretch} + next > u64{words} + 4) {
                    return false;
                }
                advance();
            }
            u32 taken = next < WIDTH ? shuffle(here, next) : shuffle(ahead, next - WIDTH);
            bits |= u64{taken} << count;
            count += 32;
            next++;
        }
        return true;
    }

    // A word of the stretch or the one after it.
    PORTABLE u32 look(u32 number) const {
        u32 low = shuffle(here, number % WIDTH);
        u32 high = shuffle(ahead, number % WIDTH);
        return number < WIDTH ? low : high;
    }

    // Goes on at a bit of the stretch or the one after it.
    PORTABLE void resume(u32 bit) {
        if (bit >= WIDTH * 32) {
            advance();
            bit -= WIDTH * 32;
        }
        next = bit / 32 + 2;
        bits = (u64{look(bit / 32 + 1)} << 32 | look(bit / 32)) >> (bit % 32);
        count = 64 - bit % 32;
    }

    PORTABLE u32 peek(u32 wanted) const {
        return static_cast<u32>(bits) & ((1u << wanted) - 1);
    }

    PORTABLE void drop(u32 dropped) {
        bits >>= dropped;
        count -= dropped;
    }

    // At most 16.
    PORTABLE u32 take(u32 wanted) {
        u32 taken = peek(wanted);
        drop(wanted);
        return taken;
    }

    PORTABLE void align() {
        drop(count % 8);
    }

    // Of the next bit, from `base`.
    PORTABLE u64 position() const {
        return (u64{stretch} + next) * 32 - count;
    }
};
