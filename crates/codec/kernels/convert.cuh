// Converts one number to another, by the rules in convert/mod.rs.
#pragma once

#include "cast.cuh"
#include "soft.cuh"

// `swapped` is whether either number is big-endian in memory. `bits` and the result are in native
// byte order.
PORTABLE u64 converted(u32 from, u32 to, bool swapped, u64 bits) {
    bool is_cast = is_c_type(from) && is_c_type(to) && !swapped;
    if (!is_float(from) && !is_float(to)) {
        Exact value = exact_integer(from, bits);
        u64 limit = integer_limit(to, value.negative);
        return integer_bits(to, value.negative, value.significand < limit ? value.significand : limit);
    }
    if (!is_float(from)) {
        FloatBits target = float_bits(to);
        return is_cast ? cast_to_float(target, exact_integer(from, bits))
                       : soft_integer_to_float(from, target, bits);
    }
    FloatBits source = float_bits(from);
    if (!is_float(to)) {
        return is_cast ? cast_float_to_integer(source, to, bits)
                       : soft_float_to_integer(source, to, bits);
    }
    FloatBits target = float_bits(to);
    return is_cast ? cast_float_to_float(source, target, bits)
                   : soft_float_to_float(source, target, bits);
}
