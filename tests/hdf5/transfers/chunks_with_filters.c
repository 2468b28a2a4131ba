#include "../selections.h"

int main(void) {
    begin();
    layout how = chunked();
    OK(H5Pset_shuffle(how.dcpl));
    OK(H5Pset_fletcher32(how.dcpl));
    if (H5Zfilter_avail(H5Z_FILTER_DEFLATE) > 0) OK(H5Pset_deflate(how.dcpl, 1));
    check_whole(how);
    check_hyperslabs_and_points(how);
    OK(H5Pset_chunk_cache(how.dapl, 0, 0, 0));
    check_whole(how);
    check_hyperslabs_and_points(how);
    return 0;
}
