#include "ranks.h"

enum { GROUPS = 200, ELEMENTS = 6000 };

/* Only the stand-in fails when it is told to. */
static bool may_fail(void) {
    const char *name = getenv("PENSTOCK_CUDA_LIBRARY");
    return is_on_device() && !is_alone() && name != NULL && strstr(name, "standin") != NULL;
}

static hid_t attribute_of(hid_t file, int number, hid_t space) {
    char name[20];
    snprintf(name, sizeof name, "%d", number);
    hid_t group = space < 0 ? H5Gopen2(file, name, H5P_DEFAULT)
                            : H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(group);
    hid_t attribute = space < 0 ? H5Aopen(group, "x", H5P_DEFAULT)
                                : H5Acreate2(group, "x", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT);
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
    /* All ranks have the same metadata in the end, or HDF5 waits for some, or finds none. */
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
        hid_t attribute = attribute_of(file, i, -1);
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
            hid_t attribute = attribute_of(file, i, -1);
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
