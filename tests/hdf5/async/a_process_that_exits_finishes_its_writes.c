#include "events.h"

/* Nothing is waited for, nothing is closed. */
static void leave(bool closes) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events();
    hid_t plain = create_dataset(file, "plain", 8 * MANY, H5P_DEFAULT);
    hid_t dcpl = chunked(10000), chunks = create_dataset(file, "chunks", MANY, dcpl);
    int *these = values(8 * MANY, 1);
    OK(write_later(plain, these, events));
    OK(write_later(chunks, these, events));
    free(these);
    CHECK(count_of(events) == 2);
    if (closes) {
        OK(H5Dclose_async(plain, events));
        OK(H5Dclose_async(chunks, events));
        OK(H5Fclose_async(file, events));
    }
    exit(0);
}

int main(int argc, char **argv) {
    if (argc > 1) leave(strcmp(argv[1], "closes") == 0);
    begin();
    const char *roles[] = {"closes", "leaves all open"};
    for (int i = 0; i < 2; i++) {
        CHECK(run(argv[0], roles[i]) == 0);
        CHECK(file_has_values("file.h5", "plain", 8 * MANY, 1));
        CHECK(file_has_values("file.h5", "chunks", MANY, 1));
    }
    return 0;
}
