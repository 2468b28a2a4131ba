#include "events.h"

enum { ZSTD = 32015 };

/* As HDF5 itself does, so that the program can read what it has written without the connector. */
int main(void) {
    begin();
    if (H5Zfilter_avail(ZSTD)) skip("this HDF5 has Zstd");
    hid_t file = make_file("file.h5"), events = new_events();
    const hsize_t chunk = MANY / 4;
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_chunk(dcpl, 1, &chunk));
    OK(H5Pset_filter(dcpl, ZSTD, H5Z_FLAG_OPTIONAL, 0, NULL));
    hid_t dataset = create_dataset(file, "x", MANY, dcpl);
    int *these = values(MANY, 1);
    void *memory = new_memory_with(these, MANY * sizeof(int));
    OK(write_later(dataset, memory, events));
    finish_all(events);
    for (hsize_t at = 0; at < 4; at++) {
        hsize_t offset, bytes = 0;
        unsigned left_out = 0;
        haddr_t address;
        OK(H5Dget_chunk_info(dataset, H5S_ALL, at, &offset, &left_out, &address, &bytes));
        CHECK(left_out == 1);
        CHECK(bytes == chunk * sizeof(int));
    }
    CHECK(has_values(file, "x", MANY, 1));
    close_events(events);
    OK(H5Pclose(dcpl));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free_memory(memory);
    free(these);
    return 0;
}
