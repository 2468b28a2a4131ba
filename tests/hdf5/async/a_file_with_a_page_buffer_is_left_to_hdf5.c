#include "events.h"

/* The driver penstock turns it off. */
static bool has_page_buffer(hid_t file) {
    hid_t list = H5Fget_access_plist(file);
    size_t size;
    OK(H5Pget_page_buffer_size(list, &size, NULL, NULL));
    OK(H5Pclose(list));
    return size > 0;
}

/* Its pages are written by H5Fflush alone, which a program that does not flush need not bear. */
static void write_and_read(hid_t file, const char *name, hid_t list, hid_t events) {
    hid_t dataset = create_dataset(file, name, MANY, list), part = slab(MANY, 1000, MANY / 2);
    int *these = values(MANY, 1);
    void *memory = new_memory_with(these, MANY * sizeof *these);
    OK(write_later(dataset, memory, events));
    OK(H5Dwrite_async(dataset, H5T_NATIVE_INT, part, part, H5P_DEFAULT, memory, events));
    free_memory(memory);
    memory = new_memory(MANY * sizeof *these);
    OK(read_later(dataset, memory, events));
    if (has_page_buffer(file))
        CHECK(count_of(events) == 0);
    else
        finish_all(events);
    CHECK(memory_has_values(memory, MANY, 1));
    free_memory(memory);
    free(these);
    OK(H5Sclose(part));
    OK(H5Dclose(dataset));
}

int main(void) {
    begin();
    hid_t fcpl = H5Pcreate(H5P_FILE_CREATE), fapl = H5Pcreate(H5P_FILE_ACCESS);
    OK(H5Pset_file_space_strategy(fcpl, H5F_FSPACE_STRATEGY_PAGE, 0, 1));
    OK(H5Pset_page_buffer_size(fapl, 1 << 20, 0, 0));
    hid_t file = H5Fcreate("file.h5", H5F_ACC_TRUNC, fcpl, fapl), events = new_events();
    OK(file);
    hid_t list = chunked(3000);
    write_and_read(file, "contiguous", H5P_DEFAULT, events);
    write_and_read(file, "chunked", list, events);
    close_events(events);
    OK(H5Fclose(file));
    CHECK(file_has_values("file.h5", "contiguous", MANY, 1));
    CHECK(file_has_values("file.h5", "chunked", MANY, 1));
    OK(H5Pclose(list));
    OK(H5Pclose(fapl));
    OK(H5Pclose(fcpl));
    return 0;
}
