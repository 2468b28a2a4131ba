/* H5Fclose_async of a file with H5F_CLOSE_STRONG or H5F_CLOSE_SEMI is done when it returns: what it
 * closes, or fails for, may be in use when the program waits for it later. */
#include "events.h"

static hid_t make_file_with(H5F_close_degree_t degree) {
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    OK(fapl);
    OK(H5Pset_fclose_degree(fapl, degree));
    hid_t file = H5Fcreate("degree.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    OK(file);
    OK(H5Pclose(fapl));
    return file;
}

static void check_strong(const int *these) {
    hid_t file = make_file_with(H5F_CLOSE_STRONG), events = new_events();
    hid_t one = create_dataset(file, "one", MANY, H5P_DEFAULT);
    hid_t other = create_dataset(file, "other", MANY, H5P_DEFAULT);

    write_and_hold(one, these, events);
    let_go_on_soon();
    OK(H5Fclose_async(file, events));
    CHECK(H5Iis_valid(one) == 0 && H5Iis_valid(other) == 0);
    CHECK(write_later(other, these, events) < 0);
    close_events(events);
    CHECK(file_has_values("degree.h5", "one", MANY, 1));
}

static void check_semi(const int *these) {
    hid_t file = make_file_with(H5F_CLOSE_SEMI), events = new_events();
    hid_t dataset = create_dataset(file, "one", MANY, H5P_DEFAULT);

    write_and_hold(dataset, these, events);
    let_go_on_soon();
    CHECK(H5Fclose_async(file, events) < 0);
    finish_all(events);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    OK(H5ESclose(events));
    CHECK(file_has_values("degree.h5", "one", MANY, 1));
}

int main(void) {
    begin();
    int *these = values(MANY, 1);
    check_strong(these);
    check_semi(these);
    free(these);
    return 0;
}
