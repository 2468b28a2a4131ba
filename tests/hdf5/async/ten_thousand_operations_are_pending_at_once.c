#include <dirent.h>

#include "events.h"

enum { OPERATIONS = 10000, EACH = 512, ALL = OPERATIONS * EACH };
/* Of one file: buffered and direct. A thread may have one for a moment. */
enum { DESCRIPTORS = 8 };

static int descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(folder)) {
        count++;
    }
    closedir(folder);
    return count;
}

int main(void) {
    begin_with("small=0");
    hid_t file = make_file("file.h5"), events = new_events();
    hid_t dataset = create_dataset(file, "x", ALL, H5P_DEFAULT), part = slab(ALL, 0, EACH);
    const hsize_t count = EACH;
    hid_t space = H5Screate_simple(1, &count, NULL);
    int *these = values(ALL, 1);
    void *memory = new_memory_with(these, ALL * sizeof(int));
    void *again = new_memory(ALL * sizeof(int));
    // The first use of a GPU opens descriptors of the driver's, which stay.
    OK(H5Dwrite_async(dataset, H5T_NATIVE_INT, space, part, H5P_DEFAULT, memory, events));
    finish_all(events);
    const int before = descriptors();
    hold();
    for (size_t i = 0; i < OPERATIONS; i++) {
        const hsize_t start = i * EACH;
        OK(H5Sselect_hyperslab(part, H5S_SELECT_SET, &start, NULL, &count, NULL));
        OK(H5Dwrite_async(dataset, H5T_NATIVE_INT, space, part, H5P_DEFAULT,
                          (char *)memory + start * sizeof(int), events));
    }
    CHECK(count_of(events) == OPERATIONS);
    CHECK(descriptors() <= before + DESCRIPTORS);
    release_held();
    finish_all(events);
    for (size_t i = 0; i < OPERATIONS; i++) {
        const hsize_t start = i * EACH;
        OK(H5Sselect_hyperslab(part, H5S_SELECT_SET, &start, NULL, &count, NULL));
        OK(H5Dread_async(dataset, H5T_NATIVE_INT, space, part, H5P_DEFAULT,
                         (char *)again + start * sizeof(int), events));
    }
    CHECK(descriptors() <= before + DESCRIPTORS);
    finish_all(events);
    CHECK(memory_has_values(again, ALL, 1));
    OK(H5ESclose(events));
    OK(H5Sclose(part));
    OK(H5Sclose(space));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(file_has_values("file.h5", "x", ALL, 1));
    free_memory(memory);
    free_memory(again);
    free(these);
    return 0;
}
