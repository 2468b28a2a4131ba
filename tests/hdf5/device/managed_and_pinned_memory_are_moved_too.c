#include "../selections.h"

/* In one piece, and through the chunk cache. */
static void check(hid_t dcpl, void *memory, void *found, int seed) {
    hid_t file = create_file("file.h5"), dataset = create_dataset(file, "x", ELEMENTS, dcpl);
    int *these = values(ELEMENTS, seed);
    copy_memory(memory, these, BYTES);
    OK(write_whole(dataset, memory));
    OK(read_whole(dataset, found));
    CHECK(memory_holds(found, these, BYTES));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(sec2_finds_values("file.h5", "x", ELEMENTS, seed));
    free(these);
}

int main(void) {
    begin();
    need_device();
    const hsize_t chunk = 1000;
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_chunk(dcpl, 1, &chunk));
    void *managed = NULL, *pinned = NULL;
    CUDA(cuMemAllocManaged, ADDRESS(&managed), BYTES, 1);
    CUDA(cuMemHostAlloc, ADDRESS(&pinned), BYTES, 0);
    void *device = device_memory(BYTES);
    void *const kinds[] = {managed, pinned, device};
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 3; to++) {
            check(H5P_DEFAULT, kinds[from], kinds[to], 2 * from + to);
            check(dcpl, kinds[from], kinds[to], 100 + 2 * from + to);
        }
    OK(H5Pclose(dcpl));
    return 0;
}
