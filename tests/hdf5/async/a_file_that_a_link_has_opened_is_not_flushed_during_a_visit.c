#include "events.h"

static hid_t dataset, events;
static int *these;

static herr_t write_in_visit(hid_t object, const char *name, const H5O_info2_t *info, void *data) {
    (void)object, (void)info, (void)data;
    if (strcmp(name, "g1") == 0) OK(write_later(dataset, these, events));
    return 0;
}

/* A file is open by H5Fopen, and by a link. HDF5 flushes it when a last identifier of one of these is closed, which
 * inside a visit makes every later flush fail. */
int main(void) {
    begin();
    hid_t file = make_file("file.h5"), other = make_file("other.h5"), list = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t chunk = 1 << 14;
    OK(list);
    OK(H5Pset_chunk(list, 1, &chunk));
    OK(H5Dclose(create_dataset(file, "d", MANY, list)));
    for (int i = 0; i < 200; i++) {
        char name[8];
        snprintf(name, sizeof name, "g%d", i);
        hid_t group = H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        OK(group);
        OK(H5Gclose(group));
    }
    OK(H5Lcreate_external("file.h5", "/d", other, "link", H5P_DEFAULT, H5P_DEFAULT));
    dataset = H5Dopen2(other, "link", H5P_DEFAULT);
    OK(dataset);
    events = new_events();
    these = values(MANY, 1);
    OK(H5Ovisit3(file, H5_INDEX_NAME, H5_ITER_INC, write_in_visit, NULL, H5O_INFO_BASIC));
    finish_all(events);
    put_values(file, "after", 100, 2);
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    CHECK(has_values(file, "d", MANY, 1));

    close_events(events);
    OK(H5Dclose(dataset));
    OK(H5Pclose(list));
    OK(H5Fclose(other));
    OK(H5Fclose(file));
    CHECK(file_has_values("file.h5", "after", 100, 2));
    free(these);
    return 0;
}
