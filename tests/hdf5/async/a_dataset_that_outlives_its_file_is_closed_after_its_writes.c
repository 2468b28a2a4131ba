/* A dataset that is open when its file is closed: H5Dclose is the last call on the file. It waits for plain
 * writes that continue, and reports their failures. */
#include "events.h"

static hid_t open_last(void) {
    hid_t file = H5Fopen("last.h5", H5F_ACC_RDWR, H5P_DEFAULT);
    OK(file);
    hid_t dataset = H5Dopen2(file, "values", H5P_DEFAULT);
    OK(dataset);
    OK(H5Fclose(file));
    return dataset;
}

int main(void) {
    begin_with("implicit=1");
    hid_t file = make_file("last.h5");
    put_values(file, "values", MANY, 1);
    OK(H5Fclose(file));
    int *these = values(MANY, 2);

    hid_t dataset = open_last();
    hold();
    OK(write_whole(dataset, these));
    wait_for_held_call();
    let_go_on_soon();
    OK(H5Dclose(dataset));
    CHECK(H5Fget_obj_count(H5F_OBJ_ALL, H5F_OBJ_ALL) == 0);
    CHECK(file_has_values("last.h5", "values", MANY, 2));

    dataset = open_last();
    fail_at((off_t)(H5Dget_offset(dataset) + MANY * sizeof(int) / 2), EIO);
    OK(write_whole(dataset, these));
    CHECK(H5Dclose(dataset) < 0);
    CHECK_ERROR_SAYS("Input/output error");
    fail_no_more();
    CHECK(H5Fget_obj_count(H5F_OBJ_ALL, H5F_OBJ_ALL) == 0);
    free(these);
    return 0;
}
