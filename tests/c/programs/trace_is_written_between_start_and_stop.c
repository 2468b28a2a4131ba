#include "../check.h"

int main(void) {
    make_file("data", 4096);
    unsigned char memory[4096];
    penstock_file *file = open_file("data", PENSTOCK_READ);
    OK(penstock_trace_start("trace.json"));
    OK(penstock_read(file, memory, sizeof memory, 0, NULL, NULL));
    OK(penstock_trace_stop());
    OK(penstock_close(file));

    size_t found = 0;
    unsigned char *bytes = file_bytes("trace.json", &found);
    char *text = malloc(found + 1);
    CHECK(text != NULL);
    memcpy(text, bytes, found);
    text[found] = '\0';
    CHECK(strstr(text, "\"ph\"") != NULL);
    free(text);
    free(bytes);
    return 0;
}
