#include "../check.h"

int main(void) {
    make_file("data", 100000);
    unsigned char memory[5000];
    fill(memory, sizeof memory, 77);
    penstock_options options = PENSTOCK_OPTIONS_INIT;
    options.durable = PENSTOCK_CHOICE_YES;
    OK(penstock_save("data", memory, sizeof memory, &options, NULL));

    size_t found = 0;
    unsigned char *bytes = file_bytes("data", &found);
    CHECK(found == sizeof memory);
    CHECK(holds(bytes, found, 77));
    free(bytes);
    return 0;
}
