#include "events.h"

typedef struct {
    int number;
    float part;
} record;

/* Also where HDF5 itself has to convert the elements later. */
static void check(hid_t file, const char *name, hid_t stored) {
    enum { COUNT = 200000 };
    const hsize_t count = COUNT;
    hid_t space = H5Screate_simple(1, &count, NULL), events = new_events();
    hid_t dataset =
        H5Dcreate2(file, name, stored, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(dataset);
    record *these = allocate(COUNT * sizeof *these);
    for (int i = 0; i < COUNT; i++) these[i] = (record){i, (float)(i % 1000)};
    void *memory = new_memory_with(these, COUNT * sizeof *these);
    void *again = new_memory(COUNT * sizeof *these);

    hid_t type = H5Tcreate(H5T_COMPOUND, sizeof(record)), list = H5Pcreate(H5P_DATASET_XFER);
    OK(H5Tinsert(type, "number", HOFFSET(record, number), H5T_NATIVE_INT));
    OK(H5Tinsert(type, "part", HOFFSET(record, part), H5T_NATIVE_FLOAT));
    hold();
    OK(H5Dwrite_async(dataset, type, space, space, list, memory, events));
    free_memory(memory);
    hid_t same = H5Tcopy(type), whole = H5Scopy(space);
    OK(H5Tclose(type));
    OK(H5Sclose(space));
    OK(H5Pclose(list));
    release_held();
    list = H5Pcreate(H5P_DATASET_XFER);
    OK(H5Dread_async(dataset, same, whole, whole, list, again, events));
    OK(H5Tclose(same));
    OK(H5Sclose(whole));
    OK(H5Pclose(list));
    close_events(events);
    CHECK(memory_holds(again, these, COUNT * sizeof *these));
    OK(H5Dclose(dataset));
    free_memory(again);
    free(these);
}

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), same = H5Tcreate(H5T_COMPOUND, sizeof(record));
    OK(H5Tinsert(same, "number", HOFFSET(record, number), H5T_NATIVE_INT));
    OK(H5Tinsert(same, "part", HOFFSET(record, part), H5T_NATIVE_FLOAT));
    hid_t wider = H5Tcreate(H5T_COMPOUND, 16);
    OK(H5Tinsert(wider, "part", 0, H5T_IEEE_F64BE));
    OK(H5Tinsert(wider, "number", 8, H5T_STD_I64BE));
    check(file, "same", same);
    check(file, "converted", wider);
    OK(H5Tclose(same));
    OK(H5Tclose(wider));
    OK(H5Fclose(file));
    return 0;
}
