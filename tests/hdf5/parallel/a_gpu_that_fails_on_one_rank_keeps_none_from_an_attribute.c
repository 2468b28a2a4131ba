#include "ranks.h"

enum { GROUPS = 200, ELEMENTS = 6000 };

/* Only the stand-in can be made to fail. */
static bool may_fail(void) {
    const char *name = getenv("PENSTOCK_CUDA_LIBRARY");
    return is_on_device() && !is_alone() && name != NULL && strstr(name, "standin") != NULL;
}

/* Of a new group, if there is a dataspace. */
static hid_t attribute_of(hid_t file, int number, hid_t space) {
    const hid_t list = H5P_DEFAULT;
    char name[20];
    snprintf(name, sizeof name, "%d", number);
    const bool is_new = space != H5I_INVALID_HID;
    hid_t group = is_new ? H5Gcreate2(file, name, list, list, list) : H5Gopen2(file, name, list);
    OK(group);
    hid_t attribute = is_new ? H5Acreate2(group, "x", H5T_NATIVE_INT, space, list, list)
                             : H5Aopen(group, "x", list);
    OK(attribute);
    OK(H5Gclose(group));
    return attribute;
}

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5");
    const hsize_t many = ELEMENTS;
    hid_t space = H5Screate_simple(1, &many, NULL);
    int *these = values(ELEMENTS, 1);
    void *memory = new_memory_with(these, ELEMENTS * sizeof(int));
    /* Ranks whose metadata differ would fail to make the next group, or wait for each other. */
    for (int i = 0; i < GROUPS; i++) {
        hid_t attribute = attribute_of(file, i, space);
        if (i % 25 == 24) OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
        if (rank == 1 && i % 3 == 0 && may_fail()) {
            CHECK(setenv("CUDASIM_FAIL", "copy:*", 1) == 0);
            CHECK(H5Awrite(attribute, H5T_NATIVE_INT, memory) < 0);
            CHECK_ERROR_SAYS("CUDA_ERROR");
            CHECK(unsetenv("CUDASIM_FAIL") == 0);
        } else {
            OK(H5Awrite(attribute, H5T_NATIVE_INT, memory));
        }
        OK(H5Aclose(attribute));
    }
    for (int i = 0; i < GROUPS; i++) {
        hid_t attribute = attribute_of(file, i, H5I_INVALID_HID);
        OK(H5Awrite(attribute, H5T_NATIVE_INT, memory));
        OK(H5Aclose(attribute));
    }
    OK(H5Sclose(space));
    OK(H5Fclose(file));
    barrier();
    if (rank == 0) {
        file = open_by_sec2("x.h5", H5F_ACC_RDONLY);
        int *found = allocate(ELEMENTS * sizeof *found);
        for (int i = 0; i < GROUPS; i++) {
            hid_t attribute = attribute_of(file, i, H5I_INVALID_HID);
            OK(H5Aread(attribute, H5T_NATIVE_INT, found));
            CHECK(memcmp(found, these, ELEMENTS * sizeof *found) == 0);
            OK(H5Aclose(attribute));
        }
        OK(H5Fclose(file));
        free(found);
    }
    barrier();
    free_memory(memory);
    free(these);
    return end_ranks();
}
