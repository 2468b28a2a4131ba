#include "../check.h"

int main(void) {
    begin();
    OK(H5Fclose(create_file("file.h5")));
    OK(H5Fdelete("file.h5", H5P_DEFAULT));
    CHECK(access("file.h5", F_OK) != 0);
    CHECK(H5Fdelete("file.h5", H5P_DEFAULT) < 0);
    CHECK_ERROR_SAYS("errno = 2");
    return 0;
}
