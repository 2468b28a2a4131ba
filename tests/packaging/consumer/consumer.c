/* Saves bytes to the file that it is given, reads a part back, and compares them. */
#include <penstock.h>

#include <stdio.h>
#include <string.h>

enum { LENGTH = 1 << 20, OFFSET = 12345, PART = 500000 };

static unsigned char saved[LENGTH], part[PART];

static int failed(const char *what) {
    penstock_error error = {.struct_size = sizeof error};
    penstock_last_error(&error);
    fprintf(stderr, "consumer: %s: %s\n", what, error.message);
    return 1;
}

int main(int count, char **arguments) {
    penstock_file *file = NULL;
    if (count != 2) return 2;
    for (size_t i = 0; i < LENGTH; i++) saved[i] = (unsigned char)(i * 31 + (i >> 8));

    if (penstock_save(arguments[1], saved, LENGTH, NULL, NULL) != PENSTOCK_OK)
        return failed("saving");
    if (penstock_open(arguments[1], PENSTOCK_READ, NULL, &file) != PENSTOCK_OK)
        return failed("opening");
    if (penstock_read(file, part, PART, OFFSET, NULL, NULL) != PENSTOCK_OK)
        return failed("reading");
    penstock_file_release(&file);
    if (memcmp(part, saved + OFFSET, PART) != 0) {
        fprintf(stderr, "consumer: the bytes differ\n");
        return 1;
    }
    printf("penstock %s: %d bytes are the same\n", penstock_version(), PART);
    return 0;
}
