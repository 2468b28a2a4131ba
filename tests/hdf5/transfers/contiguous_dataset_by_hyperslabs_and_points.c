#include "../selections.h"

int main(void) {
    begin();
    check_hyperslabs_and_points((layout){H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT});
    return 0;
}
