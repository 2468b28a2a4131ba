#include "events.h"

static char text[65536];

static void read_log(void) {
    FILE *log = fopen("log", "r");
    CHECK(log != NULL);
    text[fread(text, 1, sizeof text - 1, log)] = 0;
    CHECK(fclose(log) == 0);
}

/* Whether a line has all of these words. */
static bool has_line(const char *call, const char *manner, const char *why) {
    bool found = false;
    read_log();
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
        found |= strstr(line, call) && strstr(line, manner) && strstr(line, why);
    return found;
}

static int count_lines(const char *call) {
    int found = 0;
    read_log();
    for (char *at = text; (at = strstr(at, call)) != NULL; at++) found++;
    return found;
}

int main(void) {
    begin_with("log=log;max_mem_mb=8;small=100");
    hid_t file = make_file("file.h5"), events = new_events();
    int *these = values(4 * MANY, 1);
    hid_t plain = create_dataset(file, "plain", MANY, H5P_DEFAULT);
    hid_t large = create_dataset(file, "large", 4 * MANY, H5P_DEFAULT);
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_layout(dcpl, H5D_COMPACT));
    hid_t compact = create_dataset(file, "compact", 100, dcpl);

    OK(write_later(plain, these, events));
    CHECK(has_line(" H5Dwrite_async ", " async ", "4194304 bytes"));
    OK(read_later(plain, these, events));
    CHECK(has_line(" H5Dread_async ", " async ", "4194304 bytes"));
    OK(write_later(compact, these, events));
    CHECK(has_line(" H5Dwrite_async ", " sync", "compact"));
    hid_t few = slab(MANY, 0, 20);
    OK(H5Dwrite_async(plain, H5T_NATIVE_INT, few, few, H5P_DEFAULT, these, events));
    finish_all(events);
    OK(H5Dwrite_async(plain, H5T_NATIVE_INT, few, few, H5P_DEFAULT, these, events));
    CHECK(has_line(" H5Dwrite_async ", " sync", "option small"));
    OK(H5Sclose(few));
    OK(write_later(large, these, events));
    CHECK(has_line(" H5Dwrite_async ", " sync", "max_mem_mb=8"));
    finish_all(events);
    OK(H5Gclose_async(H5Gcreate_async(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT, events),
                      events));
    CHECK(has_line(" H5Gcreate_async ", " sync", ":"));
    hid_t scalar = H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate_async(file, "a", H5T_NATIVE_INT, scalar, H5P_DEFAULT, H5P_DEFAULT,
                                      events);
    CHECK(has_line(" H5Acreate_async ", " sync", ":"));
    OK(H5Awrite_async(attribute, H5T_NATIVE_INT, these, events));
    CHECK(has_line(" H5Awrite_async ", " sync", ":"));
    OK(H5Aclose_async(attribute, events));
    hid_t other = H5Fcreate_async("other.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT, events);
    OK(other);
    OK(H5Fclose(other));
    OK(H5Fclose(H5Fopen_async("other.h5", H5F_ACC_RDWR, H5P_DEFAULT, events)));
    CHECK(count_lines(" H5F") == 2);
    close_events(events);
    OK(H5Sclose(scalar));
    OK(H5Dclose(plain));
    OK(H5Dclose(large));
    OK(H5Dclose(compact));
    OK(H5Fclose(file));
    OK(H5Pclose(dcpl));
    free(these);
    return 0;
}
