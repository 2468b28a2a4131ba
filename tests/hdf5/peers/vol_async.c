/* What vol-async's own tests call of its library, for connectors that have no such functions: waiting
 * for a file or a dataset is flushing it, and what would tune vol-async does nothing. */
#include <hdf5.h>

static uint64_t delay;

herr_t H5Fwait(hid_t file, hid_t dxpl);
herr_t H5Dwait(hid_t dataset, hid_t dxpl);
herr_t H5Pset_vol_async(hid_t fapl);
herr_t H5Pset_dxpl_disable_async_implicit(hid_t dxpl, hbool_t is_disabled);
herr_t H5Pset_dxpl_delay(hid_t dxpl, uint64_t microseconds);
herr_t H5Pget_dxpl_delay(hid_t dxpl, uint64_t *microseconds);

herr_t H5Fwait(hid_t file, hid_t dxpl) {
    (void)dxpl;
    return H5Fflush(file, H5F_SCOPE_LOCAL);
}

herr_t H5Dwait(hid_t dataset, hid_t dxpl) {
    (void)dxpl;
    return H5Dflush(dataset);
}

herr_t H5Pset_vol_async(hid_t fapl) {
    (void)fapl;
    return 0;
}

herr_t H5Pset_dxpl_disable_async_implicit(hid_t dxpl, hbool_t is_disabled) {
    (void)dxpl, (void)is_disabled;
    return 0;
}

herr_t H5Pset_dxpl_delay(hid_t dxpl, uint64_t microseconds) {
    (void)dxpl;
    delay = microseconds;
    return 0;
}

herr_t H5Pget_dxpl_delay(hid_t dxpl, uint64_t *microseconds) {
    (void)dxpl;
    *microseconds = delay;
    return 0;
}
