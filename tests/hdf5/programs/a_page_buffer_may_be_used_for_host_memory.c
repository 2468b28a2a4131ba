#include "../check.h"

int main(void) {
    begin();
    hid_t fcpl = H5Pcreate(H5P_FILE_CREATE), fapl = H5Pcreate(H5P_FILE_ACCESS);
    OK(H5Pset_file_space_strategy(fcpl, H5F_FSPACE_STRATEGY_PAGE, false, 1));
    OK(H5Pset_file_space_page_size(fcpl, 4096));
    OK(H5Pset_page_buffer_size(fapl, 1 << 20, 0, 0));
    hid_t file = H5Fcreate("file.h5", H5F_ACC_TRUNC, fcpl, fapl);
    OK(file);
    CHECK(is_driven_by_penstock(file));
    put_values(file, "small", 100, 1);
    put_values(file, "large", 100000, 2);
    CHECK(has_values(file, "small", 100, 1));
    OK(H5Fclose(file));
    CHECK(sec2_finds_values("file.h5", "small", 100, 1));
    CHECK(sec2_finds_values("file.h5", "large", 100000, 2));
    return 0;
}
