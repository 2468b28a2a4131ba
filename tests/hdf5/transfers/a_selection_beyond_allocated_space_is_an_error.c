#include "../memory.h"

#include <H5FDdevelop.h>

/* A program that kept a dataspace of before the dataset shrank: the selection covers more elements than
 * the dataset, and more than the file has allocated. */
static void check_dataset(void) {
    enum { COUNT = 500000, MORE = 200000, ALL = COUNT + MORE };
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY));
    hid_t file = create_file("file.h5"), dataset = create_dataset(file, "x", COUNT, dcpl);
    hsize_t all = ALL, start = COUNT / 2, count = ALL - COUNT / 2;
    hid_t in_file = H5Screate_simple(1, &all, NULL), in_memory = H5Screate_simple(1, &count, NULL);
    OK(H5Sselect_hyperslab(in_file, H5S_SELECT_SET, &start, NULL, &count, NULL));
    int *these = values(ALL, 1);
    void *memory = new_memory_with(these, ALL * sizeof(int));
    CHECK(H5Dwrite(dataset, H5T_NATIVE_INT, in_memory, in_file, H5P_DEFAULT, memory) < 0);
    CHECK_ERROR_SAYS("addr overflow");
    CHECK(H5Dread(dataset, H5T_NATIVE_INT, in_memory, in_file, H5P_DEFAULT, memory) < 0);
    CHECK_ERROR_SAYS("addr overflow");
    CHECK(memory_has_values(memory, ALL, 1));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    file = open_by_sec2("file.h5", H5F_ACC_RDONLY);
    dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    int *found = allocate(COUNT * sizeof(int));
    OK(read_whole(dataset, found));
    for (size_t i = 0; i < COUNT; i++) CHECK(found[i] == 0);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free_memory(memory);
    free(found);
    free(these);
}

enum { END = 4096 };

/* One range, or rows with a gap after each, that end `beyond` bytes past the allocated space. */
static hid_t selected(bool rows, hsize_t beyond) {
    hsize_t all = 2 * END, start = 0, stride = 64, count = (END + beyond) / 64, block = 32;
    hid_t space = H5Screate_simple(1, &all, NULL);
    OK(space);
    if (!rows) {
        block = END + beyond;
        OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &block, NULL));
    } else {
        OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, &stride, &count, &block));
    }
    return space;
}

static herr_t transfer(H5FD_t *file, bool write, hid_t space, void *memory) {
    haddr_t offset = 0;
    size_t element = 1;
    const void *from = memory;
    if (write)
        return H5FDwrite_selection(file, H5FD_MEM_DRAW, H5P_DEFAULT, 1, &space, &space, &offset,
                                   &element, &from);
    return H5FDread_selection(file, H5FD_MEM_DRAW, H5P_DEFAULT, 1, &space, &space, &offset, &element,
                              &memory);
}

static void check_driver(void) {
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    H5FD_t *file = H5FDopen("driver", H5F_ACC_RDWR | H5F_ACC_CREAT, fapl, HADDR_UNDEF);
    CHECK(file != NULL);
    OK(H5FDset_eoa(file, H5FD_MEM_DEFAULT, END));
    void *memory = new_memory(2 * END);
    for (int rows = 0; rows < 2; rows++) {
        for (int write = 0; write < 2; write++) {
            OK(transfer(file, write, selected(rows, 0), memory));
            CHECK(transfer(file, write, selected(rows, 64), memory) < 0);
            CHECK_ERROR_SAYS("addr overflow");
        }
    }
    OK(H5FDclose(file));
    CHECK(size_of_file("driver") <= END);

    /* The space that a writer has allocated since is not in this file's superblock. */
    file = H5FDopen("driver", H5F_ACC_RDONLY | H5F_ACC_SWMR_READ, fapl, HADDR_UNDEF);
    CHECK(file != NULL);
    OK(H5FDset_eoa(file, H5FD_MEM_DEFAULT, END));
    for (int rows = 0; rows < 2; rows++) OK(transfer(file, false, selected(rows, 64), memory));
    OK(H5FDclose(file));
    free_memory(memory);
}

int main(void) {
    begin();
    check_dataset();
    check_driver();
    return 0;
}
