/* HDF5 (1.14.4, 2.0.0) cannot flush a file while it calls a function for each link, attribute or chunk,
 * and then never again. A durable write that such a function has to wait for is flushed later; its bytes
 * are read at once. */
#include "events.h"

enum { COUNT = 2 };
static const char *const names[COUNT] = {"contiguous", "chunked"};
static hid_t file, events;
static int seed, calls_made;

static void look(void) {
    for (int i = 0; i < COUNT; i++) CHECK(has_values(file, names[i], MANY, seed));
    size_t left;
    hbool_t failed;
    OK(H5ESwait(events, 0, &left, &failed));
    CHECK(!failed);
    OK(H5ESwait(events, H5ES_WAIT_FOREVER, &left, &failed));
    CHECK(!failed);
    calls_made++;
}

static herr_t of_link(hid_t group, const char *name, const H5L_info2_t *info, void *data) {
    (void)group, (void)name, (void)info, (void)data;
    look();
    return 0;
}

static herr_t of_object(hid_t group, const char *name, const H5O_info2_t *info, void *data) {
    (void)group, (void)name, (void)info, (void)data;
    look();
    return 0;
}

static herr_t of_attribute(hid_t object, const char *name, const H5A_info_t *info, void *data) {
    (void)object, (void)name, (void)info, (void)data;
    look();
    return 0;
}

static int of_chunk(const hsize_t *offset, unsigned mask, haddr_t address, hsize_t size, void *data) {
    (void)offset, (void)mask, (void)address, (void)size, (void)data;
    look();
    return 1;
}

static herr_t iterate(int kind, hid_t other) {
    switch (kind) {
    case 0: return H5Ovisit3(file, H5_INDEX_NAME, H5_ITER_INC, of_object, NULL, H5O_INFO_BASIC);
    case 1: return H5Literate2(file, H5_INDEX_NAME, H5_ITER_INC, NULL, of_link, NULL);
    case 2: return H5Lvisit2(file, H5_INDEX_NAME, H5_ITER_INC, of_link, NULL);
    case 3: return H5Aiterate2(file, H5_INDEX_NAME, H5_ITER_INC, NULL, of_attribute, NULL);
    default: return H5Dchunk_iter(other, H5P_DEFAULT, of_chunk, NULL);
    }
}

int main(void) {
    begin_with("durable=yes");
    events = new_events();
    file = make_file("visit.h5");
    hid_t list = chunked(MANY / 8), space = H5Screate(H5S_SCALAR);
    OK(space);
    OK(H5Aclose(H5Acreate2(file, "a", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT)));
    hid_t other = create_dataset(file, "other", MANY, list);
    hid_t datasets[] = {create_dataset(file, names[0], MANY, H5P_DEFAULT),
                        create_dataset(file, names[1], MANY, list)};
    int *these = values(MANY, 0);
    OK(write_whole(other, these));
    free(these);
    for (int kind = 0; kind < 5; kind++) {
        these = values(MANY, seed = kind + 1);
        for (int i = 0; i < COUNT; i++) OK(write_later(datasets[i], these, events));
        calls_made = 0;
        OK(iterate(kind, other));
        CHECK(calls_made > 0);
        finish_all(events);
        OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
        free(these);
    }
    close_events(events);
    for (int i = 0; i < COUNT; i++) OK(H5Dclose(datasets[i]));
    OK(H5Dclose(other));
    OK(H5Pclose(list));
    OK(H5Sclose(space));
    OK(H5Fclose(file));
    for (int i = 0; i < COUNT; i++) CHECK(file_has_values("visit.h5", names[i], MANY, seed));
    return 0;
}
