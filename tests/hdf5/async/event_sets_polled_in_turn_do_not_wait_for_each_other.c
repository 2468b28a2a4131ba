/* What has ended in one event set is found, though an older operation of another one, which is polled
 * just before, continues. */
#include "events.h"

int main(void) {
    begin();
    hid_t file = make_file("turns.h5"), older = new_events(), newer = new_events();
    hid_t dataset = create_dataset(file, "held", MANY, H5P_DEFAULT), dcpl = chunked(MANY);
    /* Nothing is stored of it: reading it moves no bytes of the file. */
    hid_t empty = create_dataset(file, "empty", MANY, dcpl);
    OK(H5Pclose(dcpl));
    int *these = values(MANY, 1), *found = values(MANY, 2);

    write_and_hold(dataset, these, older);
    for (int i = 0; i < 3; i++) OK(read_later(empty, found, newer));
    CHECK(count_of(newer) == 3);
    size_t going_on = 1, left = 1;
    hbool_t failed;
    for (int i = 0; i < 5000 && left > 0; i++) {
        OK(H5ESwait(older, 0, &going_on, &failed));
        OK(H5ESwait(newer, 0, &left, &failed));
        CHECK(!failed);
        usleep(1000);
    }
    CHECK(left == 0);
    CHECK(going_on == 1);

    release_held();
    close_events(older);
    close_events(newer);
    OK(H5Dclose(empty));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free(found);
    free(these);
    return 0;
}
