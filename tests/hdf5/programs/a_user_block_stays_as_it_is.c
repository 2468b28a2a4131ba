#include "../check.h"

enum { BLOCK = 2048 };

int main(void) {
    begin();
    hid_t fcpl = H5Pcreate(H5P_FILE_CREATE);
    OK(H5Pset_userblock(fcpl, BLOCK));
    hid_t file = H5Fcreate("file.h5", H5F_ACC_TRUNC, fcpl, H5P_DEFAULT);
    OK(file);
    put_values(file, "x", 5000, 1);
    OK(H5Fclose(file));
    char text[BLOCK], found[BLOCK];
    memset(text, 'u', BLOCK);
    int descriptor = open("file.h5", O_RDWR);
    CHECK(descriptor >= 0 && pwrite(descriptor, text, BLOCK, 0) == BLOCK);
    file = open_file("file.h5", H5F_ACC_RDWR);
    CHECK(has_values(file, "x", 5000, 1));
    put_values(file, "y", 5000, 2);
    OK(H5Fclose(file));
    CHECK(pread(descriptor, found, BLOCK, 0) == BLOCK && memcmp(found, text, BLOCK) == 0);
    close(descriptor);
    CHECK(sec2_finds_values("file.h5", "x", 5000, 1));
    CHECK(sec2_finds_values("file.h5", "y", 5000, 2));
    OK(H5Pclose(fcpl));
    return 0;
}
