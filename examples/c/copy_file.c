/* Reads a file into GPU memory, and saves it from there under another name, atomically:
 * a file of that name is replaced.
 *
 * Without a GPU, the same calls work on host memory; only the report differs.
 *
 *     copy_file FROM TO
 */
#include <penstock.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void die(void) {
    penstock_error error = {0};
    error.struct_size = sizeof error;
    penstock_last_error(&error);
    fprintf(stderr, "copy_file: %s\n", error.message);
    exit(1);
}

static void check(int status) {
    if (status != PENSTOCK_OK) die();
}

static void print(const char *what, const penstock_report *report) {
    static const char *const routes[] = {"default", "auto", "host", "staged", "mapped", "gds"};
    printf("%s %" PRIu64 " bytes by route %s in %.3f ms\n", what, report->bytes,
           routes[report->route], (double)report->elapsed_ns * 1e-6);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: copy_file FROM TO\n");
        return 2;
    }

    penstock_file *file = NULL;
    uint64_t size = 0;
    check(penstock_open(argv[1], PENSTOCK_READ, NULL, &file));
    check(penstock_file_size(file, &size));

    int devices = 0;
    void *memory = NULL;
    check(penstock_device_count(&devices));
    if (devices > 0) {
        check(penstock_device_alloc(0, size, &memory));
    } else if ((memory = malloc(size > 0 ? size : 1)) == NULL) {
        fprintf(stderr, "copy_file: no memory for %" PRIu64 " bytes\n", size);
        return 1;
    }

    penstock_report report = PENSTOCK_REPORT_INIT;
    check(penstock_read(file, memory, size, 0, NULL, &report));
    print("read ", &report);
    check(penstock_close(file));

    penstock_options options = PENSTOCK_OPTIONS_INIT;
    options.durable = PENSTOCK_CHOICE_YES;
    check(penstock_save(argv[2], memory, size, &options, &report));
    print("saved", &report);

    if (devices > 0) {
        check(penstock_device_free(memory));
    } else {
        free(memory);
    }
    return 0;
}
