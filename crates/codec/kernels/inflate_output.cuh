// What a deflate stream decodes to, written by a warp.
#pragma once

#include "memory.cuh"

// From here on a byte is one that is in memory already.
constexpr u32 BYTE_OF_MEMORY = 256;

// Bytes are collected in groups, one a lane. A byte of a group is a literal, or one that was decoded
// before the group; those are fetched all at once when the group is full, and stored when the next
// one is, so that the warp need not wait for them.
struct InflateOutput {
    u64 base;
    u32 room;
    // Where the group begins; all before it is in memory or held.
    u32 written = 0;
    // Bytes in the group.
    u32 pending = 0;
    // This lane's byte of the group: a literal, or `BYTE_OF_MEMORY` and how far it lies before the
    // last byte before the group.
    u32 byte = 0;
    // The group before, on its way to memory.
    u32 held = 0;
    u32 held_count = 0;

    PORTABLE InflateOutput(u64 base, u32 room) : base(base), room(room) {}

    PORTABLE u32 position() const {
        return written + pending;
    }

    PORTABLE void store_held() {
        if (lane() < held_count) {
            store(base + (written - held_count) + lane(), static_cast<u8>(held));
        }
        held_count = 0;
        warp_barrier();
    }

    // False where the room ends before the group does; then nothing of it is written.
    PORTABLE bool flush() {
        store_held();
        if (pending > room - written) {
            return false;
        }
        held = byte;
        if (lane() < pending && byte >= BYTE_OF_MEMORY) {
            held = load<u8>(base + (written - 1 - (byte - BYTE_OF_MEMORY)));
        }
        held_count = pending;
        written += pending;
        pending = 0;
        return true;
    }

    PORTABLE bool finish() {
        bool fits = flush();
        store_held();
        return fits;
    }

    PORTABLE bool literal(u32 value) {
        byte = lane() == pending ? value : byte;
        return ++pending < WIDTH || flush();
    }

    // Literals of as many lanes, from the first one on.
    PORTABLE bool literals(u32 value, u32 count) {
        u32 turned = shuffle(value, (lane() - pending) % WIDTH);
        byte = lane() >= pending ? turned : byte;
        u32 all = pending + count;
        if (all < WIDTH) {
            pending = all;
            return true;
        }
        pending = WIDTH;
        if (!flush()) {
            return false;
        }
        pending = all - WIDTH;
        byte = turned;
        return true;
    }

    // Repeats what was written `distance` bytes before, which is not before the beginning.
    PORTABLE bool copy_back(u32 distance, u32 length) {
        const u32 start = position();
        if (length > room - start) {
            // As much as there is room for, and then it is known to be too long.
            return false;
        }
        u32 done = 0;
        while (done < length) {
            u32 part = length - done;
            part = part < WIDTH - pending ? part : WIDTH - pending;
            u32 ordinal = written + lane() - start;
            u32 from = start - distance + (distance < length ? ordinal % distance : ordinal);
            u32 copied = BYTE_OF_MEMORY + (written - 1 - from);
            // Only before the first flush some of the bytes can be in the group itself.
            if (done == 0 && distance < part + pending) {
                u32 other = shuffle(byte, (from - written) % WIDTH);
                copied = from >= written ? other : copied;
            }
            bool mine = lane() >= pending && lane() < pending + part;
            byte = mine ? copied : byte;
            pending += part;
            done += part;
            if (pending == WIDTH && !flush()) {
                return false;
            }
        }
        return true;
    }

    // Copies bytes that are no part of the output.
    PORTABLE bool copy_in(u64 from, u32 length) {
        if (!flush()) {
            return false;
        }
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
