#include "../check.h"

int main(void) {
    make_file("data", 4096);
    unsigned char memory[4096];
    penstock_file *file = open_file("data", PENSTOCK_READ);
    const uint64_t shape[1] = {4096};
    penstock_filter filter = {2, 0, 0, 0, NULL};
    penstock_stored_array described;
    memset(&described, 0, sizeof described);
    described.struct_size = sizeof described;
    described.rank = 1;
    described.element = 1;
    described.shape = shape;
    described.filters = &filter;
    described.filter_count = 1;
    penstock_stored *stored = NULL;
    filter.reserved = 1;
    CHECK(penstock_stored_open(&described, &stored) == PENSTOCK_ERR_INVALID);
    CHECK(strstr(last_error().message, "penstock_filter") != NULL);
    described.filter_count = 0;
    OK(penstock_stored_open(&described, &stored));

    penstock_request *request = NULL;
    penstock_array array = PENSTOCK_ARRAY_INIT;
    array.data = memory;
    array.rank = 1;
    array.shape = shape;
    array.reserved = 1;
    CHECK(penstock_stored_read_submit(file, stored, NULL, &array, NULL, NULL, 0, &request) ==
          PENSTOCK_ERR_INVALID);
    CHECK(strstr(last_error().message, "penstock_array") != NULL);

    array.reserved = 0;
    penstock_decoding decoding = PENSTOCK_DECODING_INIT;
    decoding.reserved = 1;
    array.decoding = &decoding;
    CHECK(penstock_stored_read_submit(file, stored, NULL, &array, NULL, NULL, 0, &request) ==
          PENSTOCK_ERR_INVALID);
    CHECK(strstr(last_error().message, "penstock_decoding") != NULL);

    /* A form that is not defined yet, also where it has no meaning. */
    array.decoding = NULL;
    const penstock_axis axis = {0, 1, 4096, NULL};
    penstock_selection selection = PENSTOCK_SELECTION_INIT;
    selection.rank = 1;
    selection.axes = &axis;
    selection.form = 2;
    CHECK(penstock_stored_read_submit(file, stored, &selection, &array, NULL, NULL, 0, &request) ==
          PENSTOCK_ERR_INVALID);
    CHECK(strstr(last_error().message, "2 is not a selection form") != NULL);
    OK(penstock_stored_close(stored));
    OK(penstock_close(file));
    return 0;
}
