#include "../selections.h"

/* HDF5 keeps a window of a contiguous dataset in memory, and writes all of it when a part was changed.
 * The bytes that it reads beside that part must not be older than those of the pending write. */
enum { MANY = 1 << 20, FROM = 1000 };

static hid_t space;

static void select_range(hsize_t start, hsize_t count) {
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &count, NULL));
}

static void write_beside(hid_t file, const char *name, bool reads_before) {
    int *expected = values(MANY, 1), *after = values(MANY, 2);
    void *memory = new_memory_with(after, MANY * sizeof *after);
    hid_t events = H5EScreate(), dataset = create_dataset(file, name, MANY, H5P_DEFAULT);
    OK(events);
    OK(write_whole(dataset, expected));

    select_range(FROM, MANY - FROM);
    OK(H5Dwrite_async(dataset, H5T_NATIVE_INT, space, space, H5P_DEFAULT, memory, events));
    if (reads_before) {
        int *found = allocate(MANY * sizeof *found);
        select_range(FROM - 100, 50);
        OK(H5Dread(dataset, H5T_NATIVE_INT, space, space, H5P_DEFAULT, found));
        free(found);
    }
    select_range(FROM - 10, 10);
    OK(H5Dwrite(dataset, H5T_NATIVE_INT, space, space, H5P_DEFAULT, after));
    memcpy(expected + FROM - 10, after + FROM - 10, (MANY - FROM + 10) * sizeof *after);

    size_t left;
    hbool_t failed;
    OK(H5ESwait(events, H5ES_WAIT_FOREVER, &left, &failed));
    CHECK(!failed && left == 0);
    OK(H5ESclose(events));
    OK(H5Dclose(dataset));
    OK(H5Fflush(file, H5F_SCOPE_LOCAL));

    int *found = allocate(MANY * sizeof *found);
    hid_t again = H5Freopen(file);
    OK(again);
    dataset = H5Dopen2(again, name, H5P_DEFAULT);
    OK(read_whole(dataset, found));
    CHECK(memcmp(found, expected, MANY * sizeof *found) == 0);
    OK(H5Dclose(dataset));
    OK(H5Fclose(again));
    free(found);
    free_memory(memory);
    free(after);
    free(expected);
}

int main(void) {
    begin();
    hid_t file = H5Fcreate("file.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    OK(file);
    hsize_t count = MANY;
    space = H5Screate_simple(1, &count, NULL);
    OK(space);
    const char *names[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++) write_beside(file, names[i], i % 2);
    OK(H5Sclose(space));
    OK(H5Fclose(file));
    return 0;
}
