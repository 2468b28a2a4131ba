#include "events.h"

/* One classification queries the type of the memory, and then all other attributes. */
enum { QUERIES = 2 };

static int queries(void) { return cuda_call("cudasim_calls", ADDRESS("pointer"), 0, 0); }

int main(void) {
    begin_with("copy=never");
    need_standin();
    if (getenv("HDF5_DRIVER") != NULL) skip("the driver classifies the buffers of metadata, too");
    /* Of a contiguous dataset, the connector also reads elements into memory of its own. */
    hsize_t chunk = MANY;
    hid_t chunked = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_chunk(chunked, 1, &chunk));
    hid_t file = make_file("file.h5"), dataset = create_dataset(file, "x", MANY, chunked);
    OK(H5Pclose(chunked));
    int *these = values(MANY, 1);
    OK(write_whole(dataset, these));
    void *memory = device_memory(MANY * sizeof(int));
    copy_memory(memory, these, MANY * sizeof(int));
    hid_t events = new_events();

    int before = queries();
    OK(write_later(dataset, memory, events));
    finish_all(events);
    CHECK(queries() - before == QUERIES);

    before = queries();
    OK(read_later(dataset, memory, events));
    finish_all(events);
    CHECK(queries() - before == QUERIES);

    close_events(events);
    CHECK(memory_has_values(memory, MANY, 1));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free_device_memory(memory);
    free(these);
    return 0;
}
