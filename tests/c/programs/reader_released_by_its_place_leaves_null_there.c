#include "../check.h"

int main(void) {
    penstock_reader *place = NULL;
    penstock_reader_release(NULL);
    penstock_reader_release(&place);
    CHECK(place == NULL);
    return 0;
}
