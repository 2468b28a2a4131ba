#include "../selections.h"

int main(void) {
    begin();
    check_whole((layout){H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT});
    return 0;
}
