// The kinds of numbers and the layout of their bits.
#pragma once

#include "memory.cuh"

// In the order of `Number` in convert/number.rs.
enum NumberKind : u32 {
    U8, I8, U16, I16, U32, I32, U64, I64, F8E4M3, F8E5M2, F16, BF16, F32, F64,
};

PORTABLE bool is_float(u32 kind) {
    return kind >= F8E4M3;
}

PORTABLE bool is_signed(u32 kind) {
    return kind & 1;
}

// Whether C has a type for the number.
PORTABLE bool is_c_type(u32 kind) {
    return kind < F8E4M3 || kind == F16 || kind >= F32;
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

// The bits of mantissa and exponent of a floating-point format. In every format the exponent of all
// ones is infinity or NaN.
struct FloatBits {
    u32 mantissa;
    u32 exponent;

    PORTABLE i32 bias() const {
        return (1 << (exponent - 1)) - 1;
    }
    // The biased exponent of infinity.
    PORTABLE i32 top() const {
        return (1 << exponent) - 1;
    }
    PORTABLE u64 fraction() const {
        return (1ull << mantissa) - 1;
    }
    PORTABLE u64 infinity() const {
        return static_cast<u64>(top()) << mantissa;
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

// The magnitude of the lowest or the highest integer of a kind.
PORTABLE u64 integer_limit(u32 kind, bool negative) {
    u64 most = ~0ull >> (64 - 8 * size_of(kind));
    if (!is_signed(kind)) {
        return negative ? 0 : most;
    }
    return negative ? (most >> 1) + 1 : most >> 1;
}

// The bits of an integer with this sign and magnitude.
PORTABLE u64 integer_bits(u32 kind, bool negative, u64 magnitude) {
    return (negative ? 0 - magnitude : magnitude) & ~0ull >> (64 - 8 * size_of(kind));
}

// A finite number of any kind: significand * 2^exponent.
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
    // The magnitude of the lowest number does not fit in an i64.
    u64 magnitude = value < 0 ? 0 - static_cast<u64>(value) : static_cast<u64>(value);
    return {value < 0, magnitude, 0};
}

PORTABLE Exact exact_float(FloatBits form, u64 bits) {
    u64 significand = bits & form.fraction();
    i32 exponent = static_cast<i32>((bits & form.infinity()) >> form.mantissa);
    if (exponent == 0) {
        exponent = 1;
    } else {
        significand |= 1ull << form.mantissa;
    }
    exponent -= form.bias() + static_cast<i32>(form.mantissa);
    return {(bits & form.sign()) != 0, significand, exponent};
}
