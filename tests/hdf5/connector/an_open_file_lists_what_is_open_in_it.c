#include "objects.h"

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), group = make_group(file, "g"), other = make_file("other.h5");
    hid_t dataset = create_dataset(group, "x", 10, H5P_DEFAULT);
    CHECK(H5Fget_obj_count(file, H5F_OBJ_ALL) == 3);
    CHECK(H5Fget_obj_count(other, H5F_OBJ_ALL) == 1);
    CHECK(H5Fget_obj_count(H5F_OBJ_ALL, H5F_OBJ_ALL) == 4);
    hid_t found[4];
    CHECK(H5Fget_obj_ids(file, H5F_OBJ_DATASET, 4, found) == 1);
    CHECK(found[0] == dataset);
    OK(H5Dclose(dataset));
    CHECK(H5Fget_obj_count(file, H5F_OBJ_ALL) == 2);
    OK(H5Gclose(group));
    OK(H5Fclose(other));
    OK(H5Fclose(file));
    return 0;
}
