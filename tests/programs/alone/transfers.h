/* Transfers, plain and in event sets. What they have read is printed when it is there. */
#ifndef TRANSFERS_H
#define TRANSFERS_H

#include "line.h"
#include "memory.h"
#include "types.h"

#include <inttypes.h>

enum { SETS = 3, MOST = 256, TOGETHER = 4 };

typedef struct {
    hid_t id;
    int type;
} dataset;

/* A transfer: what H5Dread and H5Dwrite take. */
typedef struct {
    hid_t id, type, flat, space;
    memory buffer;
    size_t elements;
    int line, is_read;
} transfer;

static hid_t sets[SETS];
static transfer pending[SETS][MOST];
static int pending_count[SETS];
static int has_failed[SETS]; /* whether a call failed: HDF5 alone does not leave that to the set */

static hid_t memory_type(int type, long choice)
{
    if (type < NUMBERS && choice >= 0)
        return choice / NUMBERS % 2 ? in_file[choice % NUMBERS] : in_memory[choice % NUMBERS];
    if ((type == RECORD || type == PADDED) && choice >= 0)
        return some_of_record[choice % 2];
    return in_memory[type];
}

/* Values of the seed in new memory, for as many elements as the space selects. */
static void give_memory(transfer *made, dataset of, hsize_t count, long on_device, long seed)
{
    made->flat = H5Screate_simple(1, &count, NULL);
    made->elements = count;
    size_t size = H5Tget_size(made->type), whole = size * count;
    int has_text = H5Tdetect_class(made->type, H5T_STRING) > 0 && (of.type == TEXT || of.type == WITH_TEXT);
    unsigned char *bytes = malloc(whole + 1);
    memset(bytes, has_text ? 0 : 0xA5, whole);
    uint64_t state = (uint64_t)seed * 1000003;
    if (of.type < NUMBERS)
        state |= (uint64_t)(seed & 3) << MAY_BE_NEGATIVE;
    if (!made->is_read)
        for_each_part(bytes, count, made->type, make_part, &state);
    made->buffer = memory_of(bytes, whole, on_device && !has_text);
}

static void finished(transfer *done, int is_right)
{
    unsigned char *bytes = to_host(&done->buffer);
    uint64_t hash = 1469598103934665603ull;
    is_right &= done->is_read;
    if (is_right) {
        for_each_part(bytes, done->elements, done->type, hash_part, &hash);
        printf("%d gives %016" PRIx64 "\n", done->line, hash);
    }
    free(bytes);
    H5Sclose(done->flat);
    H5Sclose(done->space);
}

static void wait_for(long set)
{
    size_t left = 0;
    hbool_t failed = 0;
    int status = H5ESwait(sets[set], H5ES_WAIT_FOREVER, &left, &failed);
    int is_right = status >= 0 && !failed && !has_failed[set];
    report("waits", is_right ? 0 : -1);
    for (int i = 0; i < pending_count[set]; i++)
        finished(&pending[set][i], is_right);
    pending_count[set] = has_failed[set] = 0;
    if (failed) { /* a set with an error takes nothing else */
        H5ESclose(sets[set]);
        sets[set] = H5EScreate();
    }
}

static void wait_for_all(void)
{
    for (int i = 0; i < SETS; i++)
        if (pending_count[i])
            wait_for(i);
}

/* One or several transfers, plain if `set` is negative, or in an event set. */
static void carry_out(transfer *made, int used, long set, hid_t list)
{
    hid_t ids[TOGETHER], types[TOGETHER], flats[TOGETHER], spaces[TOGETHER];
    void *buffers[TOGETHER];
    const int is_read = made[0].is_read;
    for (int i = 0; i < used; i++) {
        ids[i] = made[i].id, types[i] = made[i].type, flats[i] = made[i].flat, spaces[i] = made[i].space;
        buffers[i] = made[i].buffer.bytes;
    }
    size_t n = (size_t)used;
    const void **sources = (const void **)buffers;
    int status;
    if (set >= 0 && pending_count[set] + used > MOST)
        wait_for(set);
    if (set < 0 && n == 1)
        status = is_read ? H5Dread(ids[0], types[0], flats[0], spaces[0], list, buffers[0])
                         : H5Dwrite(ids[0], types[0], flats[0], spaces[0], list, buffers[0]);
    else if (set < 0)
        status = is_read ? H5Dread_multi(n, ids, types, flats, spaces, list, buffers)
                         : H5Dwrite_multi(n, ids, types, flats, spaces, list, sources);
    else if (n == 1)
        status = is_read ? H5Dread_async(ids[0], types[0], flats[0], spaces[0], list, buffers[0], sets[set])
                         : H5Dwrite_async(ids[0], types[0], flats[0], spaces[0], list, buffers[0], sets[set]);
    else
        status = is_read ? H5Dread_multi_async(n, ids, types, flats, spaces, list, buffers, sets[set])
                         : H5Dwrite_multi_async(n, ids, types, flats, spaces, list, sources, sets[set]);
    if (set < 0)
        report(is_read ? "reads" : "writes", status);
    else
        has_failed[set] |= status < 0;
    for (int i = 0; i < used; i++)
        if (set >= 0)
            pending[set][pending_count[set]++] = made[i];
        else
            finished(&made[i], status >= 0);
}
#endif
