/* A mandatory filter that fails when HDF5 writes the chunks of its cache, as a full disk does. */
#ifndef FAILING_FILTER_H
#define FAILING_FILTER_H

#include "events.h"

enum { FAILS = 300, CACHED = 100 };

static size_t filter_fails(unsigned flags, size_t count, const unsigned values[], size_t bytes, size_t *size,
                           void **data) {
    (void)count, (void)values, (void)size, (void)data;
    return flags & H5Z_FLAG_REVERSE ? bytes : 0;
}

/* Makes a dataset whose elements are in HDF5's chunk cache, which cannot write them. */
static inline hid_t dataset_that_fails(hid_t file, const char *name) {
    const H5Z_class2_t fails = {H5Z_CLASS_T_VERS, FAILS, 1, 1, "fails", NULL, NULL, filter_fails};
    const hsize_t chunk = 7;
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Zregister(&fails));
    OK(H5Pset_chunk(dcpl, 1, &chunk));
    OK(H5Pset_filter(dcpl, FAILS, H5Z_FLAG_MANDATORY, 0, NULL));
    hid_t dataset = create_dataset(file, name, CACHED, dcpl);
    int *these = values(CACHED, 1);
    OK(write_whole(dataset, these));
    free(these);
    OK(H5Pclose(dcpl));
    return dataset;
}

#endif
