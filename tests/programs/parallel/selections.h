/* Datasets that ranks share, and what each rank selects of what it owns. */
#ifndef SELECTIONS_H
#define SELECTIONS_H

#include "../alone/transfers.h"

enum { SLOTS = 16, RANK = 3 };

typedef struct {
    dataset of;
    int file, is_packed, is_compact, is_whole;
    hsize_t chunk[RANK]; /* 0 if it is not chunked */
    /* Of this epoch: the extent at its beginning, and what this rank owns. */
    hsize_t base[RANK];
    int is_read_only, is_cyclic, axis, place;
    int had_independent, is_exchanged; /* whether an independent transfer came, or may not come */
    hsize_t block;
    hid_t again; /* by the second opening of its file, or -1 */
} shared_dataset;

static int rank, ranks;

typedef struct {
    hsize_t start[RANK], stride[RANK], count[RANK], block[RANK];
    int is_empty;
} box;

/* The part of [low, high) that two thousandths and a step say. */
static void take_range(box *made, int axis, hsize_t low, hsize_t high, const long part[3])
{
    hsize_t stop = low + (high - low) * (hsize_t)part[1] / 1000;
    made->start[axis] = low + (high - low) * (hsize_t)part[0] / 1000;
    made->stride[axis] = (hsize_t)part[2];
    made->block[axis] = 1;
    made->count[axis] = 0;
    if (stop > made->start[axis])
        made->count[axis] = (stop - made->start[axis] + made->stride[axis] - 1) / made->stride[axis];
}

/* Whole blocks of the rank, whose turn comes every `ranks` blocks. */
static void take_turns(box *made, const shared_dataset *of, const long part[3])
{
    const int axis = of->axis;
    const hsize_t all = of->base[axis] / of->block, place = (hsize_t)of->place, turns = (hsize_t)ranks;
    const hsize_t own = all > place ? (all - place + turns - 1) / turns : 0;
    const hsize_t first = own * (hsize_t)part[0] / 1000, last = own * (hsize_t)part[1] / 1000;
    made->start[axis] = (place + first * turns) * of->block;
    made->stride[axis] = turns * of->block;
    made->count[axis] = last > first ? last - first : 0;
    made->block[axis] = of->block;
}

static box own_box(const shared_dataset *of, int dimensions, long parts[RANK][3])
{
    box made = {.is_empty = 0};
    for (int i = 0; i < dimensions; i++) {
        hsize_t low = 0, high = of->base[i];
        if (i == of->axis && !of->is_read_only) {
            low = of->base[i] * (hsize_t)of->place / (hsize_t)ranks;
            high = of->base[i] * (hsize_t)(of->place + 1) / (hsize_t)ranks;
        }
        if (i == of->axis && !of->is_read_only && of->is_cyclic)
            take_turns(&made, of, parts[i]);
        else
            take_range(&made, i, low, high, parts[i]);
        made.is_empty |= made.count[i] == 0;
    }
    return made;
}

/* Up to 17 elements of a box, the last one first. */
static void select_points(hid_t space, int dimensions, const box *of)
{
    hsize_t all = 1, at[17 * RANK];
    for (int i = 0; i < dimensions; i++)
        all *= of->count[i];
    hsize_t points = all < 17 ? all : 17;
    for (hsize_t i = 0; i < points; i++) {
        hsize_t flat = (points - 1 - i) * all / points;
        for (int axis = dimensions - 1; axis >= 0; axis--) {
            at[i * (hsize_t)dimensions + (hsize_t)axis] =
                of->start[axis] + flat % of->count[axis] * of->stride[axis];
            flat /= of->count[axis];
        }
    }
    H5Sselect_elements(space, H5S_SELECT_SET, points, at);
}

/* KIND: 0 nothing, 1 a box, 2 points, 3 a box and its last element's neighbours, 4 all that can be. */
static hid_t selected(const shared_dataset *of, long kind, long parts[RANK][3])
{
    hid_t space = H5Dget_space(of->of.id);
    int dimensions = H5Sget_simple_extent_ndims(space);
    for (int i = 0; kind == 4 && i < RANK; i++)
        parts[i][0] = 0, parts[i][1] = 1000, parts[i][2] = 1;
    box own = own_box(of, dimensions, parts);
    if (kind == 0 || own.is_empty) {
        H5Sselect_none(space);
    } else if (kind == 2) {
        select_points(space, dimensions, &own);
    } else {
        H5Sselect_hyperslab(space, H5S_SELECT_SET, own.start, own.stride, own.count, own.block);
        long everything[RANK][3] = {{0, 1000, 1}, {0, 1000, 1}, {0, 1000, 1}};
        own = own_box(of, dimensions, everything);
        if (kind == 3 && !own.is_empty) { /* the corners of what it owns as well */
            H5Sselect_hyperslab(space, H5S_SELECT_OR, own.start, NULL, own.block, NULL);
            for (int i = 0; i < dimensions; i++)
                own.start[i] += (own.count[i] - 1) * own.stride[i];
            H5Sselect_hyperslab(space, H5S_SELECT_OR, own.start, NULL, own.block, NULL);
        }
    }
    return space;
}
#endif
