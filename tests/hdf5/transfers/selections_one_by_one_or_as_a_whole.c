#include "../selections.h"

/* HDF5 hands the driver whole selections, or each of their pieces, as the property says. */
int main(void) {
    begin();
    const H5D_selection_io_mode_t modes[] = {H5D_SELECTION_IO_MODE_OFF, H5D_SELECTION_IO_MODE_ON};
    for (int i = 0; i < 2; i++) {
        hid_t dxpl = H5Pcreate(H5P_DATASET_XFER);
        OK(H5Pset_selection_io(dxpl, modes[i]));
        check_hyperslabs((layout){H5P_DEFAULT, H5P_DEFAULT, dxpl});
        layout how = chunked();
        how.dxpl = dxpl;
        check_hyperslabs(how);
        OK(H5Pset_chunk_cache(how.dapl, 0, 0, 0));
        check_hyperslabs(how);
        OK(H5Pclose(dxpl));
    }
    return 0;
}
