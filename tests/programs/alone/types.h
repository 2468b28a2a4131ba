/* The types of datasets and of memory, and values of each, by recursion over what a type is made of. */
#ifndef TYPES_H
#define TYPES_H

#include <hdf5.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    NUMBERS = 20, RECORD = NUMBERS, PADDED, NESTED, WITH_TEXT, ARRAY, STRING, OPAQUE, ENUM, BITS,
    ODD_FLOAT, ODD_INTEGER, TEXT, TYPES
};

static hid_t in_file[TYPES], in_memory[TYPES], some_of_record[2];

static hid_t record(size_t size, int count, const char *const *names, const size_t *at, const hid_t *types)
{
    hid_t made = H5Tcreate(H5T_COMPOUND, size);
    for (int i = 0; i < count; i++)
        H5Tinsert(made, names[i], at[i], types[i]);
    return made;
}

static void make_types(void)
{
    static const char *const abc[] = {"a", "b", "c"};
    const hid_t numbers[NUMBERS] = {
        H5T_STD_I8LE, H5T_STD_U8LE, H5T_STD_I8BE, H5T_STD_U8BE, H5T_STD_I16LE, H5T_STD_I16BE,
        H5T_STD_U16LE, H5T_STD_U16BE, H5T_STD_I32LE, H5T_STD_I32BE, H5T_STD_U32LE, H5T_STD_U32BE,
        H5T_STD_I64LE, H5T_STD_I64BE, H5T_STD_U64LE, H5T_STD_U64BE, H5T_IEEE_F32LE, H5T_IEEE_F32BE,
        H5T_IEEE_F64LE, H5T_IEEE_F64BE};
    const hid_t natives[NUMBERS] = {
        H5T_NATIVE_SCHAR, H5T_NATIVE_UCHAR, H5T_NATIVE_SCHAR, H5T_NATIVE_UCHAR, H5T_NATIVE_SHORT,
        H5T_NATIVE_SHORT, H5T_NATIVE_USHORT, H5T_NATIVE_USHORT, H5T_NATIVE_INT, H5T_NATIVE_INT,
        H5T_NATIVE_UINT, H5T_NATIVE_UINT, H5T_NATIVE_LLONG, H5T_NATIVE_LLONG, H5T_NATIVE_ULLONG,
        H5T_NATIVE_ULLONG, H5T_NATIVE_FLOAT, H5T_NATIVE_FLOAT, H5T_NATIVE_DOUBLE, H5T_NATIVE_DOUBLE};
    for (int i = 0; i < NUMBERS; i++)
        in_file[i] = numbers[i], in_memory[i] = natives[i];
    hsize_t three = 3;
    const hid_t file_parts[] = {H5T_STD_I32LE, H5T_IEEE_F64LE, H5T_STD_I16BE};
    const hid_t parts[] = {H5T_NATIVE_INT, H5T_NATIVE_DOUBLE, H5T_NATIVE_SHORT};
    const size_t packed[] = {0, 4, 12}, padded[] = {4, 8, 16}, reversed[] = {16, 8, 0};
    in_file[RECORD] = record(14, 3, abc, packed, file_parts);
    in_memory[RECORD] = record(14, 3, abc, packed, parts);
    in_file[PADDED] = record(32, 3, abc, padded, file_parts);
    in_memory[PADDED] = record(24, 3, abc, reversed, parts);
    some_of_record[0] = record(8, 1, &abc[1], packed, &parts[1]);
    const hid_t two[] = {H5T_NATIVE_SHORT, H5T_NATIVE_LLONG};
    const char *const ca[] = {"c", "a"};
    const size_t places[] = {0, 8};
    some_of_record[1] = record(16, 2, ca, places, two);
    in_file[ARRAY] = in_memory[ARRAY] = H5Tarray_create2(H5T_STD_I32LE, 1, &three);
    const hid_t inner[] = {in_file[RECORD], in_file[ARRAY]};
    const size_t nested[] = {0, 16};
    in_file[NESTED] = in_memory[NESTED] = record(28, 2, abc, nested, inner);
    in_file[TEXT] = H5Tcopy(H5T_C_S1);
    H5Tset_size(in_file[TEXT], H5T_VARIABLE);
    in_memory[TEXT] = in_file[TEXT];
    const hid_t with_text[] = {H5T_STD_I32LE, in_file[TEXT], H5T_IEEE_F64LE};
    const size_t with_text_at[] = {0, 8, 16};
    in_file[WITH_TEXT] = in_memory[WITH_TEXT] = record(24, 3, abc, with_text_at, with_text);
    in_file[STRING] = in_memory[STRING] = H5Tcopy(H5T_C_S1);
    H5Tset_size(in_file[STRING], 7);
    in_file[OPAQUE] = in_memory[OPAQUE] = H5Tcreate(H5T_OPAQUE, 5);
    H5Tset_tag(in_file[OPAQUE], "five bytes");
    in_file[ENUM] = in_memory[ENUM] = H5Tenum_create(H5T_STD_I16LE);
    for (short i = 0; i < 120; i++) {
        char name[] = {'n', (char)('0' + i / 100), (char)('0' + i / 10 % 10), (char)('0' + i % 10), 0};
        H5Tenum_insert(in_file[ENUM], name, &i);
    }
    in_file[BITS] = in_memory[BITS] = H5T_STD_B16LE;
    in_file[ODD_FLOAT] = H5Tcopy(H5T_IEEE_F32LE);
    H5Tset_fields(in_file[ODD_FLOAT], 22, 16, 6, 0, 16);
    H5Tset_precision(in_file[ODD_FLOAT], 23);
    H5Tset_size(in_file[ODD_FLOAT], 3);
    H5Tset_ebias(in_file[ODD_FLOAT], 31);
    in_memory[ODD_FLOAT] = H5T_NATIVE_FLOAT;
    in_file[ODD_INTEGER] = H5Tcopy(H5T_STD_I32LE);
    H5Tset_precision(in_file[ODD_INTEGER], 19);
    H5Tset_offset(in_file[ODD_INTEGER], 3);
    in_memory[ODD_INTEGER] = H5T_NATIVE_INT;
}

static uint64_t mixed(uint64_t number)
{
    number = (number + 1) * 0x9E3779B97F4A7C15ull;
    number = (number ^ (number >> 31)) * 0xBF58476D1CE4E5B9ull;
    return number ^ (number >> 29);
}

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 1099511628211ull;
    return hash;
}

/* A part of a value that is neither a record nor an array. */
struct part {
    size_t at, size;
    H5T_class_t kind;
    bool is_text, is_big_endian, is_signed;
};

enum { MOST_PARTS = 16 };

/* Describes the parts of a type whose values begin `at`, and returns how many parts there are then. */
static int describe(hid_t type, size_t at, int count, struct part parts[MOST_PARTS])
{
    H5T_class_t kind = H5Tget_class(type);
    size_t size = H5Tget_size(type);
    if (kind == H5T_COMPOUND) {
        for (int i = 0; i < H5Tget_nmembers(type); i++) {
            hid_t member = H5Tget_member_type(type, (unsigned)i);
            count = describe(member, at + H5Tget_member_offset(type, (unsigned)i), count, parts);
            H5Tclose(member);
        }
    } else if (kind == H5T_ARRAY) {
        hid_t base = H5Tget_super(type);
        for (size_t place = 0; place < size; place += H5Tget_size(base))
            count = describe(base, at + place, count, parts);
        H5Tclose(base);
    } else if (count < MOST_PARTS) {
        bool is_text = kind == H5T_STRING && H5Tis_variable_str(type) > 0;
        bool is_big_endian = kind != H5T_STRING && kind != H5T_OPAQUE && H5Tget_order(type) == H5T_ORDER_BE;
        bool is_signed = kind == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_2;
        parts[count++] = (struct part){at, size, kind, is_text, is_big_endian, is_signed};
    } else {
        abort();
    }
    return count;
}

/* HDF5 sorts the members of a type when it first converts it. */
static int by_place(const void *one, const void *other)
{
    const struct part *a = one, *b = other;
    return (a->at > b->at) - (a->at < b->at);
}

typedef void (*visitor)(unsigned char *value, const struct part *part, uint64_t *state);

/* Calls `visit` for each part of each value. The type is described once, since HDF5 takes long for that. */
static void for_each_part(unsigned char *values, size_t count, hid_t type, visitor visit, uint64_t *state)
{
    struct part parts[MOST_PARTS];
    int number = describe(type, 0, 0, parts);
    qsort(parts, (size_t)number, sizeof *parts, by_place);
    size_t size = H5Tget_size(type);
    for (size_t i = 0; i < count; i++)
        for (int part = 0; part < number; part++)
            visit(values + i * size + parts[part].at, &parts[part], state);
}

/* Values are from 0 to 119, which each type has, for floats in quarters. If bit 60 of the state is set, those of
 * integers and floats may be negative as well; with bit 61, those of integers fill the range of the type. */
enum { MAY_BE_NEGATIVE = 60, FILLS_THE_RANGE = 61 };

static void make_part(unsigned char *value, const struct part *part, uint64_t *state)
{
    static const char *const words[] = {"", "a", "bc", "longer than any other of them"};
    size_t size = part->size;
    uint64_t random = mixed((*state)++);
    const bool may_be_negative = *state >> MAY_BE_NEGATIVE & 1, fills_the_range = *state >> FILLS_THE_RANGE & 1;
    if (part->is_text) {
        char *text = strdup(words[random % 4]);
        memcpy(value, &text, sizeof text);
        return;
    }
    memset(value, 0, size);
    if (part->kind == H5T_FLOAT) {
        double number = (double)(random % 480) / 4;
        if (may_be_negative && random >> 32 & 1)
            number = -1 - number; /* HDF5 alone makes the lowest integer of what is between -1 and 0 */
        float half = (float)number;
        memcpy(value, size == 4 ? (void *)&half : (void *)&number, size);
    } else if (part->kind == H5T_STRING || part->kind == H5T_OPAQUE) {
        for (size_t i = 0; i + 1 < size; i++)
            value[i] = (unsigned char)('a' + (random >> i) % 26);
    } else if (part->kind == H5T_INTEGER && fills_the_range) {
        memcpy(value, &random, size < sizeof random ? size : sizeof random);
    } else {
        int64_t number = (int64_t)(random % 120);
        if (part->is_signed && may_be_negative && random >> 32 & 1)
            number = -1 - number;
        memcpy(value, &number, size);
    }
    if (part->is_big_endian)
        for (size_t i = 0; i < size / 2; i++) {
            unsigned char other = value[i];
            value[i] = value[size - 1 - i], value[size - 1 - i] = other;
        }
}

static void hash_part(unsigned char *value, const struct part *part, uint64_t *state)
{
    if (part->is_text) {
        char *text;
        memcpy(&text, value, sizeof text);
        *state = text ? hash_bytes(*state, text, strlen(text) + 1) : hash_bytes(*state, "-", 1);
    } else {
        *state = hash_bytes(*state, value, part->size);
    }
}
#endif
