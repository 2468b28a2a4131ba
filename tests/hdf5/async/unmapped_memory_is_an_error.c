#include "events.h"

#include <sys/mman.h>

enum { BYTES = MANY * sizeof(int) };

/* As many bytes, of which the last quarter is not mapped. */
static void *mapped_in_part(void) {
    char *start = mmap(NULL, 2 * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(start != MAP_FAILED);
    CHECK(munmap(start + BYTES / 4 * 3, BYTES) == 0);
    return start;
}

typedef herr_t transfer(hid_t dataset, hid_t type, void *memory, hid_t events);

static herr_t writes(hid_t dataset, hid_t type, void *memory, hid_t events) {
    return H5Dwrite_async(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, memory, events);
}

static herr_t reads(hid_t dataset, hid_t type, void *memory, hid_t events) {
    return H5Dread_async(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, memory, events);
}

/* The call fails, or its event set. */
static void check_fails(transfer *call, hid_t dataset, hid_t type, void *memory) {
    hid_t events = new_events();
    if (call(dataset, type, memory, events) < 0) {
        CHECK_ERROR_SAYS("Bad address");
    } else {
        const char *name = call == writes ? "H5Dwrite_async" : "H5Dread_async";
        CHECK_SAYS(failure_of(events, name), "Bad address");
    }
    OK(H5ESclose(events));
}

static void check_layout(hid_t file, const char *name, hid_t dcpl) {
    hid_t dataset = create_dataset(file, name, MANY, dcpl), events = new_events();
    int *these = values(MANY, 1);
    OK(write_later(dataset, these, events));
    finish_all(events);

    void *memory = mapped_in_part(), *nowhere = (void *)(uintptr_t)4096;
    transfer *calls[] = {writes, reads};
    hid_t types[] = {H5T_NATIVE_INT, H5T_NATIVE_FLOAT};
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            check_fails(calls[i], dataset, types[j], memory);
            check_fails(calls[i], dataset, types[j], nowhere);
        }

    /* The dataset is as usable as before. */
    OK(write_later(dataset, these, events));
    close_events(events);
    CHECK(has_values(file, name, MANY, 1));
    OK(H5Dclose(dataset));
    CHECK(munmap(memory, BYTES / 4 * 3) == 0);
    free(these);
}

static void check_all(void) {
    hid_t file = make_file("file.h5"), plain = chunked(10000), filtered = chunked(10000);
    OK(H5Pset_shuffle(filtered));
    check_layout(file, "contiguous", H5P_DEFAULT);
    check_layout(file, "chunked", plain);
    check_layout(file, "filtered", filtered);
    OK(H5Pclose(plain));
    OK(H5Pclose(filtered));
    OK(H5Fclose(file));
}

int main(int argc, char **argv) {
    if (argc > 1) {
        begin_with("copy=never");
    } else {
        begin();
        CHECK(run(argv[0], "in place") == 0);
    }
    check_all();
    return 0;
}
