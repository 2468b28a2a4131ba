// HDF5's conversions by C casts, between native C types. All arithmetic is integer arithmetic on the
// bits, so that no compiler flag and no rounding mode changes a result.
#pragma once

#include "number.cuh"

// Rounds to nearest, ties to even. Values beyond the highest finite one become infinite, even if it
// is nearest.
PORTABLE u64 cast_to_float(FloatBits form, Exact value) {
    u64 sign = value.negative ? form.sign() : 0;
    if (value.significand == 0) {
        return sign;
    }
    i32 zeros = leading_zeros(value.significand);
    u64 significand = value.significand << zeros;
    i32 exponent = value.exponent - zeros + 63 + form.bias();
    i32 dropped = 63 - static_cast<i32>(form.mantissa);
    if (exponent < 1) {
        // Too small for an implied leading one.
        dropped += 1 - exponent;
        exponent = 1;
    }
    if (dropped > 64) {
        return sign;
    }
    u64 kept = dropped == 64 ? 0 : significand >> dropped;
    u64 rest = dropped == 64 ? significand : significand << (64 - dropped);
    // The leading one, if there is one, carries into the exponent.
    u64 bits = (static_cast<u64>(exponent - 1) << form.mantissa) + kept;
    if (bits >= form.infinity() || (bits == form.infinity() - 1 && rest != 0)) {
        return sign | form.infinity();
    }
    u64 half = 1ull << 63;
    return sign | (bits + (rest > half || (rest == half && (bits & 1))));
}

PORTABLE u64 cast_float_to_float(FloatBits from, FloatBits to, u64 bits) {
    u64 magnitude = bits & (from.sign() - 1);
    if (magnitude < from.infinity()) {
        return cast_to_float(to, exact_float(from, bits));
    }
    u64 infinity = to.infinity() | ((bits & from.sign()) ? to.sign() : 0);
    if (magnitude == from.infinity()) {
        return infinity;
    }
    // The upper bits of the payload stay, and the first one makes the NaN quiet.
    u64 payload = (bits & from.fraction()) << (63 - from.mantissa) >> (63 - to.mantissa);
    return infinity | payload | 1ull << (to.mantissa - 1);
}

// The integer part; the largest u64 if it does not fit.
PORTABLE u64 whole_part(Exact value) {
    if (value.exponent < 0) {
        return value.exponent <= -64 ? 0 : value.significand >> -value.exponent;
    }
    if (value.significand == 0) {
        return 0;
    }
    return value.exponent > leading_zeros(value.significand) ? ~0ull : value.significand << value.exponent;
}

// The C cast as x86-64 performs it, also where C leaves the result undefined. Converts to i32 or
// i64, whose lowest value represents NaN and values out of range, and keeps the low bits.
PORTABLE u64 x86_cast(u32 to, bool finite, Exact value) {
    u32 size = size_of(to);
    u64 whole = finite ? whole_part(value) : ~0ull;
    u64 lowest = size == 8 || to == U32 ? 1ull << 63 : 1ull << 31;
    if (to == U64 && finite && !value.negative && whole >= lowest) {
        // The cast subtracts 2^63 first and adds it to the result.
        return whole == ~0ull ? 0 : whole;
    }
    return whole >= lowest ? integer_bits(to, false, lowest) : integer_bits(to, value.negative, whole);
}

PORTABLE u64 cast_float_to_integer(FloatBits from, u32 to, u64 bits) {
    u64 magnitude = bits & (from.sign() - 1);
    bool negative = (bits & from.sign()) != 0;
    bool is_nan = magnitude > from.infinity();
    // HDF5 does not compare F16 with the limits of U16 and of integers of more than 16 bits.
    bool is_unchecked = from.mantissa == 10 && (size_of(to) > 2 || to == U16);
    if (!is_unchecked && !is_nan) {
        // As a number of the source type, the limit may have been rounded up.
        u64 limit = integer_limit(to, negative);
        u64 limit_bits = cast_to_float(from, {false, limit, 0});
        if (magnitude > limit_bits) {
            return integer_bits(to, negative, limit);
        }
    }
    bool finite = magnitude < from.infinity();
    if (to == U64 && magnitude == from.infinity() && !negative) {
        // Infinity less 2^63 is still out of range.
        return 0;
    }
    return x86_cast(to, finite, exact_float(from, bits));
}
