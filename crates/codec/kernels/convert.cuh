// One number as another one, by HDF5's rules. Whole-number arithmetic on the bits throughout, so
// that no compiler flag and no rounding mode changes a result.
#pragma once

#include "memory.cuh"

// In the order of `Number` in convert/mod.rs.
enum NumberKind : u32 {
    U8, I8, U16, I16, U32, I32, U64, I64, F8E4M3, F8E5M2, F16, BF16, F32, F64,
};

PORTABLE bool is_float(u32 kind) {
    return kind >= F8E4M3;
}

PORTABLE bool is_signed(u32 kind) {
    return kind & 1;
}

PORTABLE u32 size_of(u32 kind) {
    if (kind < F8E4M3) {
        return 1u << (kind >> 1);
    }
    switch (kind) {
    case F8E4M3:
    case F8E5M2:
        return 1;
    case F16:
    case BF16:
        return 2;
    case F32:
        return 4;
    default:
        return 8;
    }
}

// How many bits of a floating-point number are its mantissa and its exponent. The exponent of all
// ones is infinity or not a number in every one of them.
struct FloatBits {
    u32 mantissa;
    u32 exponent;

    PORTABLE i32 bias() const {
        return (1 << (exponent - 1)) - 1;
    }
    PORTABLE u64 infinity() const {
        return ((1ull << exponent) - 1) << mantissa;
    }
    PORTABLE u64 sign() const {
        return 1ull << (mantissa + exponent);
    }
};

PORTABLE FloatBits float_bits(u32 kind) {
    switch (kind) {
    case F8E4M3:
        return {3, 4};
    case F8E5M2:
        return {2, 5};
    case F16:
        return {10, 5};
    case BF16:
        return {7, 8};
    case F32:
        return {23, 8};
    default:
        return {52, 11};
    }
}

// Any finite number of any kind: significand * 2^exponent.
struct Exact {
    bool negative;
    u64 significand;
    i32 exponent;
};

PORTABLE Exact exact_integer(u32 kind, u64 bits) {
    if (!is_signed(kind)) {
        return {false, bits, 0};
    }
    u32 unused = 64 - 8 * size_of(kind);
    i64 value = static_cast<i64>(bits << unused) >> unused;
    // The magnitude of the least number is no i64.
    u64 magnitude = value < 0 ? 0 - static_cast<u64>(value) : static_cast<u64>(value);
    return {value < 0, magnitude, 0};
}

PORTABLE Exact exact_float(FloatBits form, u64 bits) {
    u64 significand = bits & ((1ull << form.mantissa) - 1);
    i32 exponent = static_cast<i32>((bits & form.infinity()) >> form.mantissa);
    if (exponent == 0) {
        exponent = 1;
    } else {
        significand |= 1ull << form.mantissa;
    }
    exponent -= form.bias() + static_cast<i32>(form.mantissa);
    return {(bits & form.sign()) != 0, significand, exponent};
}

// The nearest number of the form, the even one of two; infinity beyond the largest.
PORTABLE u64 rounded_float(FloatBits form, Exact value) {
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
    u64 half = 1ull << 63;
    kept += rest > half || (rest == half && (kept & 1));
    // The leading one, where there is one, counts into the exponent; and so does a carry.
    u64 bits = (static_cast<u64>(exponent - 1) << form.mantissa) + kept;
    return sign | (bits > form.infinity() ? form.infinity() : bits);
}

// The whole part, and the nearest integer of the kind where it has none.
PORTABLE u64 clamped_integer(u32 kind, Exact value) {
    u32 width = 8 * size_of(kind);
    u64 mask = ~0ull >> (64 - width);
    u64 most = is_signed(kind) ? mask >> 1 : mask;
    u64 least = is_signed(kind) ? most + 1 : 0;
    u64 limit = value.negative ? least : most;
    u64 whole = value.significand;
    if (value.exponent < 0) {
        whole = value.exponent <= -64 ? 0 : whole >> -value.exponent;
    } else if (whole != 0 && value.exponent > leading_zeros(whole)) {
        whole = limit;
    } else {
        whole <<= value.exponent & 63;
    }
    whole = whole > limit ? limit : whole;
    return (value.negative ? 0 - whole : whole) & mask;
}

PORTABLE u64 converted(u32 from, u32 to, u64 bits) {
    if (!is_float(from)) {
        Exact value = exact_integer(from, bits);
        return is_float(to) ? rounded_float(float_bits(to), value) : clamped_integer(to, value);
    }
    FloatBits form = float_bits(from);
    u64 magnitude = bits & (form.sign() - 1);
    bool negative = (bits & form.sign()) != 0;
    if (magnitude < form.infinity()) {
        Exact value = exact_float(form, bits);
        return is_float(to) ? rounded_float(float_bits(to), value) : clamped_integer(to, value);
    }
    bool is_nan = magnitude > form.infinity();
    if (!is_float(to)) {
        // Larger than any integer.
        return is_nan ? 0 : clamped_integer(to, {negative, 1, 64});
    }
    FloatBits target = float_bits(to);
    u64 sign = negative ? target.sign() : 0;
    if (!is_nan) {
        return sign | target.infinity();
    }
    // The first bits of the payload stay, and the first of all says that it is quiet.
    u64 payload = (magnitude & ((1ull << form.mantissa) - 1)) << (63 - form.mantissa);
    u64 quiet = 1ull << (target.mantissa - 1);
    return sign | target.infinity() | quiet | payload >> (63 - target.mantissa);
}
