#include "../memory.h"
#include "later.h"

/* The connector below gets host memory, which it may not use later. */
int main(void) {
    CHECK(unsetenv("HDF5_VOL_CONNECTOR") == 0);
    begin();
    need_device();
    hid_t connector = register_later(), file = make_file_above(connector, "file.h5");
    hid_t events = H5EScreate(), dataset = create_dataset(file, "x", 100, H5P_DEFAULT);
    int *these = values(100, 1);
    void *memory = device_memory(100 * sizeof(int));
    copy_memory(memory, these, 100 * sizeof(int));
    OK(H5Dwrite_async(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, memory, events));
    free_device_memory(memory);
    CHECK(has_values(file, "x", 100, 1));
    size_t left = 1;
    hbool_t failed = true;
    OK(H5ESwait(events, H5ES_WAIT_FOREVER, &left, &failed));
    CHECK(left == 0 && !failed);
    OK(H5ESclose(events));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    OK(H5VLclose(connector));
    free(these);
    return 0;
}
