#include "../check.h"

#include <fcntl.h>

int main(void) {
    make_file("data", 4096);
    unsigned char memory[4096];
    penstock_file *file = open_file("data", PENSTOCK_READ);
    OK(penstock_read(file, memory, sizeof memory, 0, NULL, NULL));

    const pid_t child = forked();
    if (child == 0) {
        CHECK(penstock_is_forked());
        penstock_options options = PENSTOCK_OPTIONS_INIT;
        OK(penstock_options_parse("threads=3", &options));
        CHECK(options.threads == 3);
        uint64_t bytes = 0;
        OK(penstock_parse_size("5KB", &bytes));
        CHECK(bytes == 5000);
        int folder = -1;
        char *name = NULL;
        OK(penstock_place_find("data", &folder, &name));
        const int made = openat(folder, "made", O_RDWR | O_CREAT, 0600);
        CHECK(made >= 0);
        OK(penstock_place_take_rights(made, folder, name));
        penstock_string_free(name);
        OK(penstock_search_folder("."));
        OK(penstock_nvcomp_path("./libnvcomp.so"));
        _exit(0);
    }
    wait_for(child);
    OK(penstock_close(file));
    return 0;
}
