#include "events.h"

/* Also of an operation whose chunks the polling thread passes to HDF5. */
static void poll(hid_t events) {
    size_t left = 1;
    hbool_t failed = false;
    for (int waited = 0; left > 0; waited++) {
        CHECK(waited < 60000);
        OK(H5ESwait(events, 0, &left, &failed));
        CHECK(!failed);
        usleep(1000);
    }
}

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events(), dcpl = chunked(30000);
    hid_t plain = create_dataset(file, "plain", MANY, H5P_DEFAULT);
    hid_t chunks = create_dataset(file, "chunks", MANY, dcpl);
    int *these = values(MANY, 1);
    void *memory = new_memory_with(these, MANY * sizeof(int));
    void *again = new_memory(MANY * sizeof(int));

    write_and_hold(plain, memory, events);
    size_t left = 0;
    hbool_t failed = true;
    OK(H5ESwait(events, 0, &left, &failed));
    CHECK(left == 1 && !failed);
    release_held();
    poll(events);
    CHECK(has_values(file, "plain", MANY, 1));

    OK(write_later(chunks, memory, events));
    poll(events);
    OK(read_later(chunks, again, events));
    poll(events);
    CHECK(memory_has_values(again, MANY, 1));
    close_events(events);
    OK(H5Dclose(plain));
    OK(H5Dclose(chunks));
    OK(H5Fclose(file));
    OK(H5Pclose(dcpl));
    free_memory(memory);
    free_memory(again);
    free(these);
    return 0;
}
