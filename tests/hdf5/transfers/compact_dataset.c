#include "../selections.h"

int main(void) {
    begin();
    layout how = {H5Pcreate(H5P_DATASET_CREATE), H5P_DEFAULT, H5P_DEFAULT};
    OK(H5Pset_layout(how.dcpl, H5D_COMPACT));
    check_whole(how);
    check_hyperslabs_and_points(how);
    return 0;
}
