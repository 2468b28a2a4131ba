// HDF5's soft conversion, bit field by bit field, for all numbers that it does not cast. It follows
// HDF5 exactly, also where its results are surprising; convert/mod.rs describes the rules.
#pragma once

#include "number.cuh"

// The exponent is biased for the target. `fraction` has `width` bits after a leading one.
PORTABLE u64 soft_magnitude(FloatBits to, u64 fraction, i32 width, i32 exponent, bool was_denormal) {
    i32 mantissa = static_cast<i32>(to.mantissa);
    if (exponent >= to.top()) {
        return to.infinity();
    }
    if (exponent < -mantissa) {
        return 0;
    }
    // How many bits the leading one of a denormal result lies below the implied one.
    i32 down = exponent < 1 ? 1 - exponent : 0;
    exponent = exponent < 1 ? 0 : exponent;
    if (down > mantissa) {
        // Half the smallest denormal and more rounds up to it.
        return 1;
    }
    i32 room = mantissa - down;
    u64 before = static_cast<u64>(exponent) << mantissa | (down > 0 ? 1ull << room : 0);
    if (width <= room) {
        return before | fraction << (room - width);
    }
    i32 cut = width - room;
    u64 kept = fraction >> cut;
    if ((fraction >> (cut - 1) & 1) == 0) {
        return before | kept;
    }
    u64 full = (1ull << room) - 1;
    if (was_denormal || down > 0) {
        // HDF5 loses the carry out of the kept bits.
        return before | ((kept + 1) & full);
    }
    if (kept == full && exponent == to.top() - 1) {
        // The highest finite number is not rounded up to infinity.
        return before | kept;
    }
    return before + kept + 1;
}

PORTABLE u64 soft_float_to_float(FloatBits from, FloatBits to, u64 bits) {
    u64 sign = (bits & from.sign()) ? to.sign() : 0;
    u64 fraction = bits & from.fraction();
    i32 exponent = static_cast<i32>((bits & from.infinity()) >> from.mantissa);
    if (exponent == from.top()) {
        return sign | to.infinity() | (fraction ? to.fraction() : 0);
    }
    if (exponent == 0 && fraction == 0) {
        return sign;
    }
    bool is_denormal = exponent == 0;
    i32 width = static_cast<i32>(from.mantissa);
    if (is_denormal) {
        i32 leading = 63 - leading_zeros(fraction);
        fraction ^= 1ull << leading;
        exponent = 1 - (width - leading);
        width = leading;
    }
    return sign | soft_magnitude(to, fraction, width, exponent - from.bias() + to.bias(), is_denormal);
}

PORTABLE u64 soft_integer_to_float(u32 from, FloatBits to, u64 bits) {
    Exact value = exact_integer(from, bits);
    if (value.significand == 0) {
        return 0;
    }
    u64 sign = value.negative ? to.sign() : 0;
    i32 width = 63 - leading_zeros(value.significand);
    u64 fraction = value.significand ^ 1ull << width;
    i32 exponent = width + to.bias();
    i32 cut = width - static_cast<i32>(to.mantissa);
    u64 kept;
    if (cut <= 0) {
        kept = fraction << -cut;
    } else {
        u64 rest = fraction & ((1ull << cut) - 1);
        u64 half = 1ull << (cut - 1);
        kept = fraction >> cut;
        kept += rest > half || (rest == half && (kept & 1));
    }
    if (kept > to.fraction()) {
        kept = 0;
        exponent++;
    }
    // With the exponent of infinity and a nonzero mantissa the result is NaN, as in HDF5.
    return sign | (exponent > to.top() ? to.infinity() : static_cast<u64>(exponent) << to.mantissa | kept);
}

PORTABLE u64 soft_float_to_integer(FloatBits from, u32 to, u64 bits) {
    bool negative = (bits & from.sign()) != 0;
    u64 fraction = bits & from.fraction();
    i32 exponent = static_cast<i32>((bits & from.infinity()) >> from.mantissa);
    u64 limit = integer_limit(to, negative);
    if (exponent == from.top()) {
        return fraction ? 0 : integer_bits(to, negative, limit);
    }
    if (exponent == 0 && fraction == 0) {
        return 0;
    }
    i32 power = exponent - from.bias();
    if (power >= static_cast<i32>(8 * size_of(to))) {
        return integer_bits(to, negative, limit);
    }
    if (power < 0) {
        // HDF5 treats values between -0.5 and 0 as an overflow.
        return negative && power < -1 ? integer_bits(to, negative, limit) : 0;
    }
    u64 whole = fraction | 1ull << from.mantissa;
    i32 shift = power - static_cast<i32>(from.mantissa);
    whole = shift < 0 ? whole >> -shift : whole << shift;
    return integer_bits(to, negative, whole < limit ? whole : limit);
}
