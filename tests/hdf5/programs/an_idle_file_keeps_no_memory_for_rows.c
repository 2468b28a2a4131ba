#include "../rows.h"

#include <malloc.h>

enum { DATASETS = 16 };

static size_t allocated(void) { return mallinfo2().uordblks; }

int main(void) {
    begin();
#ifdef __SANITIZE_ADDRESS__
    skip("the heap of AddressSanitizer does not say how much is allocated");
#endif
    hid_t file = create_file("file.h5"), all[DATASETS];
    for (int i = 0; i < DATASETS; i++) {
        char name[8];
        snprintf(name, sizeof name, "%d", i);
        all[i] = create_rows(file, name);
        write_rows(all[i], 0, 1, 1, 1);
    }
    size_t before = allocated();
    for (int i = 0; i < DATASETS; i++) write_rows(all[i], 1, 20, 1, 1);
    size_t with_rows = allocated();
    CHECK(with_rows > before + DATASETS * VALUES * sizeof(int) / 2);
    for (int i = 0; i < 100 && allocated() > before + 65536; i++) pass_time(20);
    CHECK(allocated() <= before + 65536);
    for (int i = 0; i < DATASETS; i++) {
        CHECK(are_rows(all[i], 0, 20, 1, 1));
        OK(H5Dclose(all[i]));
    }
    OK(H5Fclose(file));
    return 0;
}
