#include "../check.h"

int main(void) {
    begin();
    hid_t file = create_file("file.h5"), other = create_file("other.h5");
    CHECK(link("file.h5", "hard.h5") == 0 && symlink("file.h5", "soft.h5") == 0);
    hid_t hard = open_file("hard.h5", H5F_ACC_RDWR), soft = open_file("soft.h5", H5F_ACC_RDWR);
    unsigned long number = 0, same = 0, another = 0;
    OK(H5Fget_fileno(file, &number));
    OK(H5Fget_fileno(hard, &same));
    CHECK(same == number);
    OK(H5Fget_fileno(soft, &same));
    CHECK(same == number);
    OK(H5Fget_fileno(other, &another));
    CHECK(another != number);
    put_values(file, "x", 1000, 1);
    CHECK(has_values(soft, "x", 1000, 1));
    OK(H5Fclose(soft));
    OK(H5Fclose(hard));
    OK(H5Fclose(other));
    OK(H5Fclose(file));
    return 0;
}
