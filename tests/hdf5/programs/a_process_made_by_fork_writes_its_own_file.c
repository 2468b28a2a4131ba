#include "../check.h"

/* The engine's threads are not there, but host memory needs none of them. */
int main(void) {
    begin();
    hid_t file = create_file("parent.h5");
    put_values(file, "x", 3000000, 1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        hid_t own = create_file("child.h5");
        put_values(own, "x", 3000000, 2);
        CHECK(has_values(own, "x", 3000000, 2));
        OK(H5Fclose(own));
        _exit(0);
    }
    CHECK(finish(child) == 0);
    put_values(file, "y", 3000000, 3);
    OK(H5Fclose(file));
    CHECK(sec2_finds_values("parent.h5", "x", 3000000, 1));
    CHECK(sec2_finds_values("parent.h5", "y", 3000000, 3));
    CHECK(sec2_finds_values("child.h5", "x", 3000000, 2));
    return 0;
}
