#include "events.h"

enum { FILTER = 300 };

static int *expected;
static void *memory;

/* A filter that only HDF5 has. Returns when the read of the even elements has filled them. */
static size_t filter(unsigned flags, size_t count, const unsigned parameters[], size_t bytes,
                     size_t *size, void **buffer) {
    (void)count, (void)parameters, (void)size, (void)buffer;
    if (flags & H5Z_FLAG_REVERSE) {
        release_held();
        const size_t last = 2 * (size_t)MANY - 2;
        for (int tries = 0; tries < 10000; tries++) {
            int first, end;
            copy_memory(&first, memory, sizeof first);
            copy_memory(&end, (int *)memory + last, sizeof end);
            if (first == expected[0] && end == expected[last]) break;
            usleep(1000);
        }
    }
    return bytes;
}

static const H5Z_class2_t CLASS = {
    H5Z_CLASS_T_VERS, FILTER, 1, 1, "identity", NULL, NULL, filter,
};

static hid_t every_second_of(hsize_t all, hsize_t start) {
    hid_t space = H5Screate_simple(1, &all, NULL);
    const hsize_t stride = 2, count = all / 2;
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, &stride, &count, NULL));
    return space;
}

/* The even elements are filled in the background while HDF5 reads the odd ones. */
int main(void) {
    begin_with_one_worker();
    OK(H5Zregister(&CLASS));
    const hsize_t all = 2 * (hsize_t)MANY, chunk = MANY;
    hid_t file = make_file("file.h5"), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_chunk(dcpl, 1, &chunk));
    OK(H5Pset_filter(dcpl, FILTER, 0, 0, NULL));
    put_values(file, "even", MANY, 1);
    hid_t odd = create_dataset(file, "odd", MANY, dcpl);
    int *these = values(MANY, 2);
    OK(write_whole(odd, these));
    OK(H5Dclose(odd));
    OK(H5Fclose(file));

    expected = allocate(all * sizeof(int));
    memory = new_memory_with(expected, all * sizeof(int));
    for (size_t at = 0; at < MANY; at++) {
        expected[2 * at] = value_at(at, 1);
        expected[2 * at + 1] = these[at];
    }
    file = look_at_file("file.h5");
    hid_t even = H5Dopen2(file, "even", H5P_DEFAULT), events = new_events();
    odd = H5Dopen2(file, "odd", H5P_DEFAULT);
    hid_t evens = every_second_of(all, 0), odds = every_second_of(all, 1);
    hold();
    OK(H5Dread_async(even, H5T_NATIVE_INT, evens, H5S_ALL, H5P_DEFAULT, memory, events));
    wait_for_held_call();
    OK(H5Dread_async(odd, H5T_NATIVE_INT, odds, H5S_ALL, H5P_DEFAULT, memory, events));
    close_events(events);
    CHECK(memory_holds(memory, expected, all * sizeof(int)));
    OK(H5Dclose(even));
    OK(H5Dclose(odd));
    OK(H5Sclose(evens));
    OK(H5Sclose(odds));
    OK(H5Fclose(file));
    OK(H5Pclose(dcpl));
    free_memory(memory);
    free(expected);
    free(these);
    return 0;
}
