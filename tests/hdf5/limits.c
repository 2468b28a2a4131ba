/* Does with device memory what no driver can make work, because HDF5 touches the memory with the CPU
 * before or after it calls the driver: limits CASE. */
#include "memory.h"

enum { COUNT = 4096, CHUNK = 1024 };

static hid_t chunked(void) {
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t chunk = CHUNK;
    int value = 7;
    OK(H5Pset_chunk(dcpl, 1, &chunk));
    OK(H5Pset_fill_value(dcpl, H5T_NATIVE_INT, &value));
    return dcpl;
}

/* The page buffer of a file that is open for writing is off. */
static hid_t dataset_with_page_buffer(void) {
    hid_t fcpl = H5Pcreate(H5P_FILE_CREATE), fapl = H5Pcreate(H5P_FILE_ACCESS);
    OK(H5Pset_file_space_strategy(fcpl, H5F_FSPACE_STRATEGY_PAGE, 0, 1));
    OK(H5Pset_file_space_page_size(fcpl, 65536));
    OK(H5Pset_page_buffer_size(fapl, 1 << 20, 0, 0));
    hid_t file = H5Fcreate("paged.h5", H5F_ACC_TRUNC, fcpl, H5P_DEFAULT);
    OK(file);
    put_values(file, "x", COUNT, 1);
    OK(H5Fclose(file));
    file = H5Fopen("paged.h5", H5F_ACC_RDONLY, fapl);
    OK(file);
    hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    OK(dataset);
    return dataset;
}

int main(int argc, char **argv) {
    begin();
    need_device();
    CHECK(argc == 2);
    const char *which = argv[1];
#define IS(name) (strcmp(which, name) == 0)

    int *host = values(COUNT, 1), *memory = device_memory(COUNT * sizeof(double));
    copy_memory(memory, host, COUNT * sizeof *host);
    hid_t file = create_file("file.h5");
    hid_t dcpl = IS("missing_chunks") ? chunked() : H5P_DEFAULT;
    hid_t dataset = create_dataset(file, "x", COUNT, dcpl);
    if (!IS("missing_chunks")) OK(write_whole(dataset, host));

    herr_t status = -1;
    if (IS("read_as_another_type"))
        status = H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, memory);
    else if (IS("write_of_another_type"))
        status = H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, memory);
    else if (IS("read_in_another_byte_order"))
        status = H5Dread(dataset, H5T_STD_I32BE, H5S_ALL, H5S_ALL, H5P_DEFAULT, memory);
    else if (IS("missing_chunks"))
        status = read_whole(dataset, memory);
    else if (IS("fill"))
        status = H5Dfill(NULL, H5T_NATIVE_INT, memory, H5T_NATIVE_INT, H5Dget_space(dataset));
    else if (IS("page_buffer"))
        status = read_whole(dataset_with_page_buffer(), memory);
    else if (IS("attribute")) {
        hid_t space = H5Dget_space(dataset);
        hid_t attribute =
            H5Acreate2(dataset, "a", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT);
        OK(attribute);
        status = H5Awrite(attribute, H5T_NATIVE_INT, memory);
    } else {
        fail(__FILE__, __LINE__, "unknown case");
    }
    printf("%d\n", status);
    return 0;
}
