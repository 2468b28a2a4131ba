#include "events.h"

/* All of this returns while the write of another dataset is held. */
int main(void) {
    begin_with_one_worker();
    hid_t file = make_file("file.h5"), events = new_events();
    hid_t dataset = create_dataset(file, "x", MANY, H5P_DEFAULT);
    hid_t second = create_dataset(file, "second", MANY, H5P_DEFAULT);
    int *these = values(MANY, 1), *found = allocate(MANY * sizeof(int));
    write_and_hold(dataset, these, events);

    hid_t group = H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(group);
    hid_t scalar = H5Screate(H5S_SCALAR);
    hid_t attribute =
        H5Acreate2(group, "step", H5T_NATIVE_INT, scalar, H5P_DEFAULT, H5P_DEFAULT);
    OK(attribute);
    const int step = 7;
    int value = 0;
    OK(H5Awrite(attribute, H5T_NATIVE_INT, &step));
    OK(H5Aread(attribute, H5T_NATIVE_INT, &value));
    CHECK(value == step);
    OK(H5Aclose(attribute));
    attribute = H5Acreate2(dataset, "of x", H5T_NATIVE_INT, scalar, H5P_DEFAULT, H5P_DEFAULT);
    OK(attribute);
    OK(H5Awrite(attribute, H5T_NATIVE_INT, &step));
    OK(H5Aclose(attribute));
    put_values(group, "small", 100, 2);
    OK(write_whole(second, these));
    OK(read_whole(second, found));
    CHECK(memcmp(found, these, MANY * sizeof(int)) == 0);
    OK(H5Lcreate_soft("/group", file, "link", H5P_DEFAULT, H5P_DEFAULT));
    CHECK(H5Lexists(file, "link", H5P_DEFAULT) > 0);
    hid_t another = make_file("another.h5");
    put_values(another, "x", 100, 3);
    OK(H5Fclose(another));
    CHECK(count_of(events) == 1);

    release_held();
    close_events(events);
    OK(H5Sclose(scalar));
    OK(H5Gclose(group));
    OK(H5Dclose(second));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(file_has_values("file.h5", "x", MANY, 1));
    CHECK(file_has_values("file.h5", "link/small", 100, 2));
    free(these);
    free(found);
    return 0;
}
