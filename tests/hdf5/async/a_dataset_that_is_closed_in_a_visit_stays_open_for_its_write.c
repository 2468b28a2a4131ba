/* A durable write is flushed after a visit, by the dataset. The program may close the dataset in the
 * function that HDF5 calls for each link, with an event set or without. */
#include "events.h"

enum { COUNT = 4 };
static hid_t datasets[COUNT], events;
static int closed;

static herr_t visit(hid_t group, const char *name, const H5L_info2_t *info, void *data) {
    (void)group, (void)name, (void)info, (void)data;
    size_t left;
    hbool_t failed;
    if (closed % 2)
        OK(H5Dclose_async(datasets[closed], events));
    else
        OK(H5Dclose(datasets[closed]));
    closed++;
    OK(H5ESwait(events, H5ES_WAIT_FOREVER, &left, &failed));
    CHECK(!failed);
    return 0;
}

int main(void) {
    begin_with("durable=yes");
    events = new_events();
    hid_t file = make_file("visit.h5"), list = chunked(MANY / 8);
    int *these = values(MANY, 1);
    for (int i = 0; i < COUNT; i++) {
        char name[] = {(char)('a' + i), 0};
        datasets[i] = create_dataset(file, name, MANY, i < 2 ? list : H5P_DEFAULT);
        OK(write_later(datasets[i], these, events));
    }
    OK(H5Lvisit2(file, H5_INDEX_NAME, H5_ITER_INC, visit, NULL));
    CHECK(closed == COUNT);
    finish_all(events);
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    CHECK(H5Fget_obj_count(file, H5F_OBJ_DATASET) == 0);
    close_events(events);
    OK(H5Pclose(list));
    OK(H5Fclose(file));
    for (int i = 0; i < COUNT; i++) {
        char name[] = {(char)('a' + i), 0};
        CHECK(file_has_values("visit.h5", name, MANY, 1));
    }
    free(these);
    return 0;
}
