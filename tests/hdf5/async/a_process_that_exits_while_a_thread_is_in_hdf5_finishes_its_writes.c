#include "events.h"

#include <stdatomic.h>

static atomic_bool is_inside;

/* Longer than the writes take. The thread has HDF5 for itself meanwhile. */
static herr_t stay(hid_t id, void *data) {
    (void)id;
    (void)data;
    is_inside = true;
    usleep(300000);
    return 1;
}

static void *be_in_hdf5(void *data) {
    H5Iiterate(H5I_FILE, stay, data);
    return NULL;
}

static void leave(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events();
    hid_t plain = create_dataset(file, "plain", MANY, H5P_DEFAULT);
    hid_t dcpl = chunked(10000), chunks = create_dataset(file, "chunks", MANY, dcpl);
    int *these = values(MANY, 1);
    OK(write_later(plain, these, events));
    OK(write_later(chunks, these, events));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, be_in_hdf5, NULL) == 0);
    while (!is_inside) usleep(1000);
    exit(0);
}

int main(int argc, char **argv) {
    if (argc > 1) leave();
    begin();
    hbool_t is_threadsafe = false;
    OK(H5is_library_threadsafe(&is_threadsafe));
    if (!is_threadsafe) skip("this HDF5 takes one thread at a time");
    CHECK(run(argv[0], "leaves") == 0);
    CHECK(file_has_values("file.h5", "plain", MANY, 1));
    CHECK(file_has_values("file.h5", "chunks", MANY, 1));
    return 0;
}
