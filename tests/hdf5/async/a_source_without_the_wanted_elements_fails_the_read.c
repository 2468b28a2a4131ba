#include "events.h"

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events();
    const hsize_t count = MANY;
    hid_t list = H5Pcreate(H5P_DATASET_CREATE), part = slab(MANY, 0, MANY);
    OK(H5Pset_virtual(list, part, ".", "source", part));
    hid_t all = create_dataset(file, "all", count, list);
    hid_t source = create_dataset(file, "source", MANY / 2, H5P_DEFAULT);
    int *these = values(MANY, 1);
    void *memory = new_memory(MANY * sizeof(int));
    OK(write_later(source, these, events));
    finish_all(events);

    char text[8192] = "";
    herr_t status = -1;
    H5E_BEGIN_TRY {
        status = read_later(all, memory, events);
        if (status < 0) OK(H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, append_description, text));
    }
    H5E_END_TRY
    CHECK(status < 0);
    CHECK_SAYS(text, "its source /source in ");
    CHECK_SAYS(text, "has shape [524288], and its mapping is for shape [1048576]");

    /* The elements that it has are read. */
    hid_t half = slab(MANY, 0, MANY / 2), dense = slab(MANY / 2, 0, MANY / 2);
    OK(H5Dread_async(all, H5T_NATIVE_INT, dense, half, H5P_DEFAULT, memory, events));
    close_events(events);
    CHECK(memory_has_values(memory, MANY / 2, 1));
    OK(H5Sclose(half));
    OK(H5Sclose(dense));
    OK(H5Sclose(part));
    OK(H5Pclose(list));
    OK(H5Dclose(all));
    OK(H5Dclose(source));
    OK(H5Fclose(file));
    free_memory(memory);
    free(these);
    return 0;
}
