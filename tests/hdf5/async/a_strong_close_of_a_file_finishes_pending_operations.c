#include "events.h"

int main(void) {
    begin();
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), events = new_events();
    OK(H5Pset_fclose_degree(fapl, H5F_CLOSE_STRONG));
    hid_t file = H5Fcreate("file.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    OK(file);
    hid_t dataset = create_dataset(file, "x", MANY, H5P_DEFAULT);
    int *these = values(MANY, 1);
    write_and_hold(dataset, these, events);
    free(these);
    let_go_on_soon();
    OK(H5Fclose(file));
    CHECK(H5Iis_valid(dataset) == 0);
    finish_all(events);
    close_events(events);
    CHECK(file_has_values("file.h5", "x", MANY, 1));
    OK(H5Pclose(fapl));
    return 0;
}
