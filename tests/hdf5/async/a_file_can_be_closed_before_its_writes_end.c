#include "events.h"

/* The calls return while the write is held; an open of the file waits for it. */
int main(void) {
    begin();
    hid_t events = new_events();
    int *these = values(MANY, 1);
    for (int step = 0; step < 3; step++) {
        hid_t file = make_file("file.h5");
        hid_t dataset = create_dataset(file, "x", MANY, H5P_DEFAULT);
        write_and_hold(dataset, these, events);
        OK(H5Dclose_async(dataset, events));
        OK(H5Fclose_async(file, events));
        CHECK(count_of(events) > 1);
        if (step == 0) {
            release_held();
            finish_all(events);
        } else {
            let_go_on_soon();
        }
        if (step == 1) CHECK(file_has_values("file.h5", "x", MANY, 1));
        if (step == 2) {
            file = H5Fopen("file.h5", H5F_ACC_RDWR, H5P_DEFAULT);
            OK(file);
            put_values(file, "more", 100, 2);
            OK(H5Fclose(file));
        }
        finish_all(events);
    }
    close_events(events);
    CHECK(file_has_values("file.h5", "x", MANY, 1));
    CHECK(file_has_values("file.h5", "more", 100, 2));
    free(these);
    return 0;
}
