#include "../check.h"

/* A struct of a newer header, which ends in fields that the library does not know. */
#define NEWER(name, type) \
    struct { \
        type known; \
        unsigned char unknown[24]; \
    } name

/* Whether a call fails while the last unknown byte is not 0, and then succeeds. */
#define IS_CHECKED(newer, type, call) \
    (newer.known.struct_size = sizeof newer, newer.unknown[23] = 1, \
     (call) == PENSTOCK_ERR_INVALID && strstr(last_error().message, type) != NULL && \
         (newer.unknown[23] = 0, (call) == PENSTOCK_OK))

int main(void) {
    make_file("data", 4096);
    unsigned char memory[4096];
    penstock_file *file = open_file("data", PENSTOCK_READ);

    NEWER(options, penstock_options) = {PENSTOCK_OPTIONS_INIT, {0}};
    CHECK(IS_CHECKED(options, "penstock_options",
                     penstock_read(file, memory, 4096, 0, &options.known, NULL)));

    const uint64_t shape[1] = {4096};
    NEWER(described, penstock_stored_array);
    memset(&described, 0, sizeof described);
    described.known.rank = 1;
    described.known.element = 1;
    described.known.shape = shape;
    described.known.file_size = 4096;
    penstock_stored *stored = NULL;
    CHECK(IS_CHECKED(described, "penstock_stored_array",
                     penstock_stored_open(&described.known, &stored)));

    NEWER(array, penstock_array) = {PENSTOCK_ARRAY_INIT, {0}};
    array.known.data = memory;
    array.known.rank = 1;
    array.known.shape = shape;
    const penstock_axis axis = {0, 1, 4096, NULL};
    NEWER(selection, penstock_selection) = {PENSTOCK_SELECTION_INIT, {0}};
    selection.known.rank = 1;
    selection.known.axes = &axis;
    penstock_request *request = NULL;
#define READ \
    penstock_stored_read_submit(file, stored, &selection.known, &array.known, NULL, NULL, 0, &request)
    CHECK(IS_CHECKED(array, "penstock_array", READ));
    penstock_request_free(request);
    CHECK(IS_CHECKED(selection, "penstock_selection", READ));
    OK(penstock_request_wait(request, -1));
    penstock_request_free(request);
    CHECK(holds(memory, sizeof memory, 0));

    /* Such a read decodes no numbers, but first looks at how they would be decoded. */
    NEWER(decoding, penstock_decoding) = {PENSTOCK_DECODING_INIT, {0}};
    decoding.known.struct_size = sizeof decoding;
    decoding.unknown[0] = 1;
    array.known.decoding = &decoding.known;
    CHECK(READ == PENSTOCK_ERR_INVALID);
    CHECK(strstr(last_error().message, "penstock_decoding") != NULL);

    OK(penstock_stored_close(stored));
    OK(penstock_close(file));
    return 0;
}
