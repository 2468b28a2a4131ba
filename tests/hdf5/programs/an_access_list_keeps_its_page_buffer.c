#include "../check.h"

enum { SIZE = 65536, METADATA = 10, RAW = 20 };

static size_t page_buffer_of(hid_t list) {
    size_t size;
    OK(H5Pget_page_buffer_size(list, &size, NULL, NULL));
    return size;
}

static bool is_as_it_was(hid_t fapl) {
    size_t size;
    unsigned metadata, raw;
    OK(H5Pget_page_buffer_size(fapl, &size, &metadata, &raw));
    return size == SIZE && metadata == METADATA && raw == RAW;
}

/* The size of the page buffer that a file has in use. */
static size_t in_use(hid_t file) {
    hid_t list = H5Fget_access_plist(file);
    size_t size = page_buffer_of(list);
    OK(H5Pclose(list));
    return size;
}

int main(int count, char **arguments) {
    begin();
    hid_t fcpl = H5Pcreate(H5P_FILE_CREATE), fapl = H5Pcreate(H5P_FILE_ACCESS);
    OK(H5Pset_file_space_strategy(fcpl, H5F_FSPACE_STRATEGY_PAGE, 0, 1));
    OK(H5Pset_page_buffer_size(fapl, SIZE, METADATA, RAW));
    if (count > 1) {
        CHECK(H5Fopen("file.h5", H5F_ACC_RDWR, fapl) < 0);
        CHECK_ERROR_SAYS("errno = 11");
        CHECK(is_as_it_was(fapl));
        return 0;
    }
    CHECK(H5Fopen("none.h5", H5F_ACC_RDWR, fapl) < 0);
    CHECK_ERROR_SAYS("errno = 2");
    CHECK(is_as_it_was(fapl));

    /* HDF5 returns wrong elements from a file open for writing that has one. */
    hid_t file = H5Fcreate("file.h5", H5F_ACC_TRUNC, fcpl, fapl);
    OK(file);
    CHECK(is_as_it_was(fapl));
    CHECK(in_use(file) == 0);
    CHECK(run(arguments[0], "other") == 0);
    hid_t again = H5Fopen("file.h5", H5F_ACC_RDWR, fapl);
    OK(again);
    CHECK(is_as_it_was(fapl));
    OK(H5Fclose(again));
    OK(H5Fclose(file));

    file = H5Fopen("file.h5", H5F_ACC_RDWR, fapl);
    OK(file);
    CHECK(is_as_it_was(fapl));
    CHECK(in_use(file) == 0);
    OK(H5Fclose(file));

    file = H5Fopen("file.h5", H5F_ACC_RDONLY, fapl);
    OK(file);
    CHECK(is_as_it_was(fapl));
    CHECK(in_use(file) == SIZE);
    OK(H5Fclose(file));
    return 0;
}
