#include "hdf5_calls.h"

static hid_t dataset, type;

static penstock_array array_of(int *data, const uint64_t *shape, int rank) {
    penstock_array array = PENSTOCK_ARRAY_INIT;
    array.data = data;
    array.type = type;
    array.rank = rank;
    array.shape = shape;
    return array;
}

static void rows_in_any_order(void) {
    const uint64_t rows[4] = {299, 5, 5, 64}, shape[2] = {4, 100};
    const penstock_axis axes[2] = {{0, 0, 4, rows}, {1, 2, 100, NULL}};
    penstock_selection selection = PENSTOCK_SELECTION_INIT;
    selection.rank = 2;
    selection.axes = axes;
    static int found[4][100];
    const penstock_array array = array_of(&found[0][0], shape, 2);
    penstock_report report = PENSTOCK_REPORT_INIT;
    OK(penstock_dataset_read_selected(dataset, &selection, &array, NULL, NULL, 0, &report, NULL));
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 100; c++) CHECK(found[r][c] == value_at((int)rows[r], 1 + 2 * c));
    CHECK(report.bytes == sizeof found);
}

static void points_by_a_request(void) {
    const uint64_t points[6] = {7, 199, 0, 0, 7, 199}, shape[1] = {3};
    penstock_selection selection = PENSTOCK_SELECTION_INIT;
    selection.rank = 2;
    selection.points = points;
    selection.point_count = 3;
    int found[3] = {0};
    const penstock_array array = array_of(found, shape, 1);
    penstock_request *request = NULL;
    OK(penstock_dataset_read_selected(dataset, &selection, &array, NULL, NULL, 0, NULL, &request));
    OK(penstock_request_wait(request, -1));
    penstock_request_free(request);
    CHECK(found[0] == value_at(7, 199) && found[1] == 0 && found[2] == found[0]);
}

static void the_last_value_of_an_index_stays(void) {
    const uint64_t rows[3] = {10, 12, 10}, shape[2] = {3, COLUMNS};
    const penstock_axis axes[2] = {{0, 0, 3, rows}, {0, 1, COLUMNS, NULL}};
    penstock_selection selection = PENSTOCK_SELECTION_INIT;
    selection.rank = 2;
    selection.axes = axes;
    static int values[3][COLUMNS], found[ROWS][COLUMNS];
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < COLUMNS; c++) values[r][c] = -1 - r;
    const penstock_array array = array_of(&values[0][0], shape, 2);
    OK(penstock_dataset_write_selected(dataset, &selection, &array, NULL, NULL, 0, NULL, NULL));

    const uint64_t all[2] = {ROWS, COLUMNS};
    const penstock_array whole = array_of(&found[0][0], all, 2);
    OK(penstock_dataset_read_selected(dataset, NULL, &whole, NULL, NULL, 0, NULL, NULL));
    for (int c = 0; c < COLUMNS; c++) {
        CHECK(found[10][c] == -3 && found[12][c] == -2);
        CHECK(found[11][c] == value_at(11, c));
    }
}

static void runs_have_places_of_their_own(void) {
    enum { START = 7 * COLUMNS + 3, OTHER = 2 * COLUMNS, LENGTH = COLUMNS + 5 };
    const uint64_t runs[9] = {START, 0, LENGTH, OTHER, LENGTH + 2, 2, START, LENGTH, 2};
    const uint64_t shape[1] = {LENGTH + 4};
    static int found[LENGTH + 4];
    const penstock_array array = array_of(found, shape, 1);
    penstock_selection selection = PENSTOCK_SELECTION_INIT;
    selection.rank = 2;
    selection.form = PENSTOCK_RUNS;
    selection.points = runs;
    selection.point_count = 3;
    OK(penstock_dataset_read_selected(dataset, &selection, &array, NULL, NULL, 0, NULL, NULL));
    for (int at = 0; at < LENGTH; at++) {
        CHECK(found[at] == value_at((START + at) / COLUMNS, (START + at) % COLUMNS));
    }
    CHECK(found[LENGTH] == found[0] && found[LENGTH + 1] == found[1]);
    CHECK(found[LENGTH + 2] == value_at(2, 0) && found[LENGTH + 3] == value_at(2, 1));
    const uint64_t outside[3] = {ROWS * COLUMNS - 1, 0, LENGTH + 4};
    selection.points = outside;
    selection.point_count = 1;
    CHECK(penstock_dataset_read_selected(dataset, &selection, &array, NULL, NULL, 0, NULL, NULL) ==
          PENSTOCK_ERR_INVALID);
    selection.form = 2;
    CHECK(penstock_dataset_read_selected(dataset, &selection, &array, NULL, NULL, 0, NULL, NULL) ==
          PENSTOCK_ERR_INVALID);
}

static void wrong_selections_are_invalid(void) {
    const uint64_t outside[1] = {ROWS}, shape[2] = {1, COLUMNS};
    const penstock_axis axes[2] = {{0, 0, 1, outside}, {0, 1, COLUMNS, NULL}};
    static int found[COLUMNS];
    const penstock_array array = array_of(found, shape, 2);
    penstock_selection selection = PENSTOCK_SELECTION_INIT;
    selection.rank = 2;
    selection.axes = axes;
    CHECK(penstock_dataset_read_selected(dataset, &selection, &array, NULL, NULL, 0, NULL, NULL) ==
          PENSTOCK_ERR_INVALID);
    selection.rank = 1;
    CHECK(penstock_dataset_read_selected(dataset, &selection, &array, NULL, NULL, 0, NULL, NULL) ==
          PENSTOCK_ERR_INVALID);
    selection.rank = 33;
    CHECK(penstock_dataset_read_selected(dataset, &selection, &array, NULL, NULL, 0, NULL, NULL) ==
          PENSTOCK_ERR_INVALID);
    selection.rank = 2;
    selection.struct_size = 8;
    CHECK(penstock_dataset_read_selected(dataset, &selection, &array, NULL, NULL, 0, NULL, NULL) ==
          PENSTOCK_ERR_INVALID);
    penstock_selection points = PENSTOCK_SELECTION_INIT;
    points.rank = 2;
    points.point_count = 1;
    const uint64_t three[6] = {0};
    penstock_selection other = points;
    other.rank = 3;
    other.points = three;
    other.point_count = 2;
    CHECK(penstock_dataset_read_selected(dataset, &other, &array, NULL, NULL, 0, NULL, NULL) ==
          PENSTOCK_ERR_INVALID);
    CHECK(penstock_dataset_read_selected(dataset, &points, &array, NULL, NULL, 0, NULL, NULL) ==
          PENSTOCK_ERR_INVALID);
    penstock_report report = PENSTOCK_REPORT_INIT;
    penstock_request *request = NULL;
    CHECK(penstock_dataset_read_selected(dataset, NULL, &array, NULL, NULL, 0, &report, &request) ==
          PENSTOCK_ERR_INVALID);
}

int main(void) {
    load_hdf5();
    hid_t file;
    dataset = new_dataset("lists.h5", 1, &file);
    type = id_of("H5T_NATIVE_INT_g");
    rows_in_any_order();
    points_by_a_request();
    runs_have_places_of_their_own();
    the_last_value_of_an_index_stays();
    wrong_selections_are_invalid();
    CHECK(CALL(close_t *, H5Dclose)(dataset) >= 0);
    CHECK(CALL(close_t *, H5Fclose)(file) >= 0);
    return 0;
}
