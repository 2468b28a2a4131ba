#include "../selections.h"

int main(void) {
    begin();
    layout how = chunked();
    OK(H5Pset_chunk_cache(how.dapl, 0, 0, 0));
    check_whole(how);
    check_hyperslabs_and_points(how);
    return 0;
}
