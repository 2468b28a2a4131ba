/* Closing the file by which a program has reached a dataset comes after plain writes that continue, and
 * reports their failures, though the dataset lies in another file. */
#include "events.h"

static hid_t open_linked(hid_t *dataset) {
    hid_t file = H5Fopen("outer.h5", H5F_ACC_RDWR, H5P_DEFAULT);
    OK(file);
    *dataset = H5Dopen2(file, "link", H5P_DEFAULT);
    OK(*dataset);
    return file;
}

int main(void) {
    begin_with("implicit=1");
    hid_t inner = make_file("inner.h5"), outer = make_file("outer.h5"), dataset;
    put_values(inner, "values", MANY, 1);
    OK(H5Lcreate_external("inner.h5", "/values", outer, "link", H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Fclose(inner));
    OK(H5Fclose(outer));
    int *these = values(MANY, 2);

    outer = open_linked(&dataset);
    hold();
    OK(write_whole(dataset, these));
    wait_for_held_call();
    OK(H5Dclose(dataset));
    let_go_on_soon();
    OK(H5Fclose(outer));
    CHECK(!is_held);
    CHECK(sec2_finds_values("inner.h5", "values", MANY, 2));

    outer = open_linked(&dataset);
    fail_at((off_t)(H5Dget_offset(dataset) + MANY * sizeof(int) / 2), EIO);
    OK(write_whole(dataset, these));
    OK(H5Dclose(dataset));
    CHECK(H5Fclose(outer) < 0);
    CHECK_ERROR_SAYS("Input/output error");
    fail_no_more();
    OK(H5Fclose(outer));
    free(these);
    return 0;
}
