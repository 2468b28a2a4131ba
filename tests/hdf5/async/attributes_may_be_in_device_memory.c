#include "events.h"

enum { COUNT = 1000 };

static void check(hid_t file, const char *name, hid_t type, hid_t events) {
    const hsize_t count = COUNT;
    hid_t space = H5Screate_simple(1, &count, NULL);
    hid_t attribute = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    OK(attribute);
    int *these = values(COUNT, 1);
    void *memory = new_memory_with(these, COUNT * sizeof(int));
    void *again = new_memory(COUNT * sizeof(int));
    if (events != H5ES_NONE) {
        OK(H5Awrite_async(attribute, H5T_NATIVE_INT, memory, events));
        OK(H5Aread_async(attribute, H5T_NATIVE_INT, again, events));
        finish_all(events);
    } else {
        OK(H5Awrite(attribute, H5T_NATIVE_INT, memory));
        OK(H5Aread(attribute, H5T_NATIVE_INT, again));
    }
    CHECK(memory_holds(again, these, COUNT * sizeof(int)));
    OK(H5Aclose(attribute));
    OK(H5Sclose(space));
    free_memory(memory);
    free_memory(again);
    free(these);
}

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events();
    check(file, "as it is", H5T_NATIVE_INT, H5ES_NONE);
    check(file, "converted", H5T_STD_I64BE, H5ES_NONE);
    check(file, "as it is, later", H5T_NATIVE_INT, events);
    check(file, "converted, later", H5T_STD_I64BE, events);
    close_events(events);
    OK(H5Fclose(file));
    return 0;
}
