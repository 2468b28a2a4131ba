/* The identifier of a file that H5Iget_file_id gives while the file is yet to be closed keeps it open, as
 * it does when the application gets it before H5Fclose. */
#include "events.h"

int main(void) {
    begin();
    hid_t file = make_file("found.h5"), events = new_events();
    hid_t dataset = create_dataset(file, "values", MANY, H5P_DEFAULT);
    int *these = values(MANY, 1);

    write_and_hold(dataset, these, events);
    OK(H5Fclose_async(file, events));
    hid_t found = H5Iget_file_id(dataset);
    OK(found);
    let_go_on_soon();
    close_events(events);
    OK(H5Dclose(dataset));

    CHECK(H5Fget_name(found, NULL, 0) == strlen("found.h5"));
    put_values(found, "more", 10, 2);
    OK(H5Fclose(found));
    CHECK(H5Iis_valid(found) == 0);
    CHECK(H5Fget_obj_count(H5F_OBJ_ALL, H5F_OBJ_ALL) == 0);

    CHECK(file_has_values("found.h5", "values", MANY, 1));
    CHECK(file_has_values("found.h5", "more", 10, 2));
    free(these);
    return 0;
}
