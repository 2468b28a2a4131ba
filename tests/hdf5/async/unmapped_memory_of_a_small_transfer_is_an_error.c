#include "events.h"

#include <sys/mman.h>

enum { SOME = 100 };

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events(), dcpl = chunked(SOME);
    int *these = values(SOME, 1);
    long page = sysconf(_SC_PAGESIZE);
    char *mapped = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED);
    CHECK(munmap(mapped + page, page) == 0);
    /* None is mapped, and half is. */
    void *places[] = {(void *)(uintptr_t)4096, mapped + page - SOME * sizeof(int) / 2};
    hid_t datasets[] = {create_dataset(file, "contiguous", SOME, H5P_DEFAULT),
                        create_dataset(file, "chunked", SOME, dcpl)};
    for (int i = 0; i < 2; i++) {
        OK(write_later(datasets[i], these, events));
        for (int j = 0; j < 2; j++) {
            CHECK(write_later(datasets[i], places[j], events) < 0);
            CHECK_ERROR_SAYS("Bad address");
            CHECK(read_later(datasets[i], places[j], events) < 0);
            CHECK_ERROR_SAYS("Bad address");
        }
        OK(H5Dclose(datasets[i]));
    }
    close_events(events);
    CHECK(munmap(mapped, page) == 0);
    CHECK(has_values(file, "contiguous", SOME, 1));
    CHECK(has_values(file, "chunked", SOME, 1));
    OK(H5Pclose(dcpl));
    OK(H5Fclose(file));
    free(these);
    return 0;
}
