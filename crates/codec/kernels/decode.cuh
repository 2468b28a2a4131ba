// Decodes packed numbers, by the rules in convert/decode.rs.
#pragma once

#include "cast.cuh"

enum Arithmetic : u32 { UNCHANGED, NARROW, WIDE };

// gpu/place.rs declares the same struct. All numbers are the bits of a double.
struct DecodeLaunch {
    u64 scale;
    u64 offset;
    u64 fills[4];
    u32 arithmetic;
    u32 unused;
};
static_assert(sizeof(DecodeLaunch) == 56);

// A number that is not NaN, rounded to nearest.
template <class T> PORTABLE T rounded(u32 from, u64 bits) {
    if (from == F32) {
        return static_cast<T>(as_float(static_cast<u32>(bits)));
    }
    if (from == F64) {
        return static_cast<T>(as_double(bits));
    }
    if (!is_signed(from)) {
        return static_cast<T>(bits);
    }
    u32 unused = 64 - 8 * size_of(from);
    return static_cast<T>(static_cast<i64>(bits << unused) >> unused);
}

template <class T> PORTABLE bool is_fill(const DecodeLaunch &decode, T value) {
    bool any = false;
    for (u32 i = 0; i < 4; i++) {
        any |= value == static_cast<T>(as_double(decode.fills[i]));
    }
    return any;
}

// `bits` and the result are in native byte order. The result is a float or a double.
PORTABLE u64 decoded(u32 from, u32 to, const DecodeLaunch &decode, u64 bits) {
    if (is_float(from)) {
        FloatBits form = float_bits(from);
        if ((bits & (form.sign() - 1)) > form.infinity()) {
            bool is_kept = from == to && decode.arithmetic == UNCHANGED;
            return is_kept ? bits : cast_float_to_float(form, float_bits(to), bits);
        }
    }
    double scale = as_double(decode.scale);
    double offset = as_double(decode.offset);
    if (to == F32) {
        float value = rounded<float>(from, bits);
        if (is_fill(decode, value)) {
            return 0x7fc00000;
        }
        if (decode.arithmetic == NARROW) {
            value = times(value, static_cast<float>(scale));
            value = plus(value, static_cast<float>(offset));
        } else if (decode.arithmetic == WIDE) {
            value = static_cast<float>(times(static_cast<double>(value), scale));
            value = static_cast<float>(plus(static_cast<double>(value), offset));
        }
        return bits_of(value);
    }
    double value = rounded<double>(from, bits);
    if (is_fill(decode, value)) {
        return 0x7ff8000000000000ull;
    }
    if (decode.arithmetic != UNCHANGED) {
        value = plus(times(value, scale), offset);
    }
    return bits_of(value);
}
