/* HDF5 fills no memory for chunks without storage if the fill time is "never" or the fill value undefined, and
 * refuses to read if nothing was ever written and the fill value is undefined. */
#include "../memory.h"

enum { COUNT = 40000, CHUNK = 1000, WRITTEN = 3000 };

static hid_t make(hid_t file, const char *name, bool is_undefined, bool is_written) {
    hsize_t count = COUNT, chunk = CHUNK, start = 0, written = WRITTEN;
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, &count, NULL);
    OK(H5Pset_chunk(dcpl, 1, &chunk));
    if (is_undefined) OK(H5Pset_fill_value(dcpl, H5T_NATIVE_INT, NULL));
    else OK(H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER));
    hid_t dataset =
        H5Dcreate2(file, name, H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(dataset);
    if (is_written) {
        hid_t memory = H5Screate_simple(1, &written, NULL);
        int *these = values(WRITTEN, 1);
        OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &written, NULL));
        OK(H5Dwrite(dataset, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, these));
        free(these);
        OK(H5Sclose(memory));
    }
    OK(H5Sclose(space));
    OK(H5Pclose(dcpl));
    return dataset;
}

static herr_t read_async(hid_t dataset, void *found) {
    hid_t events = H5EScreate();
    OK(events);
    herr_t status =
        H5Dread_async(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, found, events);
    size_t left = 0;
    hbool_t failed = false;
    OK(H5ESwait(events, H5ES_WAIT_FOREVER, &left, &failed));
    OK(H5ESclose(events));
    return status < 0 || failed ? -1 : 0;
}

static void check(hid_t dataset, bool is_undefined, bool is_written, bool on_device) {
    size_t bytes = COUNT * sizeof(int);
    int *before = values(COUNT, 7), *expected = values(COUNT, 7), *these = values(WRITTEN, 1);
    if (is_written) memcpy(expected, these, WRITTEN * sizeof(int));
    for (int is_async = 0; is_async < 2; is_async++) {
        void *found = on_device ? device_memory(bytes) : allocate(bytes);
        copy_memory(found, before, bytes);
        herr_t status = is_async ? read_async(dataset, found) : read_whole(dataset, found);
        CHECK((status < 0) == (is_undefined && !is_written));
        if (status >= 0) CHECK(memory_holds(found, expected, bytes));
        if (on_device) free_device_memory(found);
        else free(found);
    }
    free(before);
    free(expected);
    free(these);
}

int main(void) {
    begin();
    for (int kind = 0; kind < 4; kind++) {
        hid_t file = H5Fcreate("holes.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
        OK(file);
        hid_t dataset = make(file, "x", kind & 1, kind & 2);
        check(dataset, kind & 1, kind & 2, false);
        OK(H5Dclose(dataset));
        OK(H5Fclose(file));
        file = H5Fopen("holes.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
        OK(file);
        dataset = H5Dopen2(file, "x", H5P_DEFAULT);
        OK(dataset);
        check(dataset, kind & 1, kind & 2, false);
        if (has_device()) check(dataset, kind & 1, kind & 2, true);
        OK(H5Dclose(dataset));
        OK(H5Fclose(file));
    }
    return 0;
}
