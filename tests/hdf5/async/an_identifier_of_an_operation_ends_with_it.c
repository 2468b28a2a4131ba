/* While an operation is under way, H5Fget_obj_ids has an identifier of its own for the dataset. Who takes
 * a reference to that, as h5py does, has an invalid identifier afterwards. */
#include "events.h"

int main(void) {
    begin();
    hid_t file = make_file("reference.h5"), events = new_events();
    hid_t dataset = create_dataset(file, "values", MANY, H5P_DEFAULT);
    int *these = values(MANY, 1);

    write_and_hold(dataset, these, events);
    hid_t found[8];
    ssize_t count = H5Fget_obj_ids(file, H5F_OBJ_DATASET, 8, found);
    CHECK(count >= 2);
    for (ssize_t i = 0; i < count; i++)
        if (found[i] != dataset) OK(H5Iinc_ref(found[i]));
    let_go_on_soon();
    close_events(events);
    OK(H5Dclose(dataset));

    for (ssize_t i = 0; i < count; i++) {
        CHECK(H5Dget_space(found[i]) < 0);
        CHECK(H5Iis_valid(found[i]) == 0);
    }
    OK(H5Fclose(file));
    CHECK(file_has_values("reference.h5", "values", MANY, 1));
    free(these);
    return 0;
}
