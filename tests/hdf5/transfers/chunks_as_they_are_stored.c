#include "../memory.h"

enum { COUNT = 5000 };

/* H5Dwrite_chunk and H5Dread_chunk, without a filter. */
int main(void) {
    begin();
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t chunk = COUNT, offset = COUNT;
    OK(H5Pset_chunk(dcpl, 1, &chunk));
    hid_t file = create_file("file.h5"), dataset = create_dataset(file, "x", 2 * COUNT, dcpl);
    int *written = values(COUNT, 1);
    void *memory = new_memory_with(written, COUNT * sizeof(int));
    OK(H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, &offset, COUNT * sizeof(int), memory));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));

    int *found = allocate(2 * COUNT * sizeof(int));
    file = open_by_sec2("file.h5", H5F_ACC_RDONLY);
    dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    OK(read_whole(dataset, found));
    CHECK(memcmp(found + COUNT, written, COUNT * sizeof(int)) == 0);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));

    file = open_file("file.h5", H5F_ACC_RDONLY);
    dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    void *other = new_memory(COUNT * sizeof(int));
    uint32_t filters = 0;
#if H5_VERSION_GE(2, 0, 0)
    size_t size = COUNT * sizeof(int);
    OK(H5Dread_chunk2(dataset, H5P_DEFAULT, &offset, &filters, other, &size));
#else
    OK(H5Dread_chunk(dataset, H5P_DEFAULT, &offset, &filters, other));
#endif
    CHECK(filters == 0 && memory_holds(other, written, COUNT * sizeof(int)));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free_memory(other);
    free_memory(memory);
    free(found);
    free(written);
    OK(H5Pclose(dcpl));
    return 0;
}
