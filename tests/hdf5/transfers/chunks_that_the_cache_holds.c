#include "../selections.h"

int main(void) {
    begin();
    layout how = chunked();
    check_whole(how);
    check_hyperslabs_and_points(how);
    return 0;
}
