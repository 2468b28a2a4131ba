#include "../memory.h"

#include <penstock_hdf5.h>

enum { COUNT = 3000001 };

static void check(const char *mode, const char *way) {
    char path[64], options[64];
    snprintf(path, sizeof path, "%s.h5", mode);
    snprintf(options, sizeof options, "mode=%s;block=1MiB;threads=3", mode);
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    CHECK(penstock_fapl_set(fapl, options) == PENSTOCK_OK);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    OK(file);
    put_values(file, "shift", 3, 0);
    hid_t dataset = create_dataset(file, "x", COUNT, H5P_DEFAULT);
    int *these = values(COUNT, 1);
    void *memory = device_memory(COUNT * sizeof(int)), *found = device_memory(COUNT * sizeof(int));
    copy_memory(memory, these, COUNT * sizeof(int));
    OK(write_whole(dataset, memory));
    OK(read_whole(dataset, found));
    CHECK(memory_holds(found, these, COUNT * sizeof(int)));
    char *json = NULL;
    CHECK(penstock_hdf5_file_report(file, &json) == PENSTOCK_OK);
    if (strstr(json, way) == NULL) fail(__FILE__, __LINE__, json);
    penstock_string_free(json);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(sec2_finds_values(path, "x", COUNT, 1));
    free_device_memory(found);
    free_device_memory(memory);
    free(these);
    OK(H5Pclose(fapl));
}

int main(void) {
    begin();
    need_device();
    check("auto", "ed_");
    check("sec2", "\"pageable\"");
    check("direct", "\"pageable\"");
    check("sec2+pinned", "\"pinned\"");
    check("direct+pinned", "\"pinned\"");
    check("posix-mt", "\"p");
    return 0;
}
