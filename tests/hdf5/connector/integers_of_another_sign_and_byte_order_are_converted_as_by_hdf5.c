/* HDF5 clips integers to the limits of the other sign. Where lengths are equal and the byte order differs, too,
 * it only reverses the bytes. H5Tconvert gives what it does; all ways of a transfer give the same at any size. */
#include "../memory.h"

enum { FEW = 7, MANY = 40000 };

/* Types of one length. Those of one byte have a byte order as well. */
static void types_of(int size, hid_t types[4]) {
    const hid_t all[4][4] = {
        {H5T_STD_I8LE, H5T_STD_U8LE, H5T_STD_I8BE, H5T_STD_U8BE},
        {H5T_STD_I16LE, H5T_STD_U16LE, H5T_STD_I16BE, H5T_STD_U16BE},
        {H5T_STD_I32LE, H5T_STD_U32LE, H5T_STD_I32BE, H5T_STD_U32BE},
        {H5T_STD_I64LE, H5T_STD_U64LE, H5T_STD_I64BE, H5T_STD_U64BE},
    };
    memcpy(types, all[size], sizeof all[size]);
}

static void wait_for(hid_t events) {
    size_t left = 0;
    hbool_t failed = false;
    OK(H5ESwait(events, H5ES_WAIT_FOREVER, &left, &failed));
    CHECK(left == 0 && !failed);
}

/* Writes elements of type `from` to a dataset of type `to`, and reads them as type `from` again. */
static void check(hid_t file, hid_t dcpl, hid_t from, hid_t to, hsize_t count, bool on_device) {
    size_t bytes = count * H5Tget_size(from);
    hid_t space = H5Screate_simple(1, &count, NULL), events = H5EScreate();
    int *given = values(bytes / sizeof(int) + 1, 3);
    void *stored = allocate(bytes), *back = allocate(bytes), *found = allocate(bytes);
    memcpy(stored, given, bytes);
    OK(H5Tconvert(from, to, count, stored, NULL, H5P_DEFAULT));
    memcpy(back, stored, bytes);
    OK(H5Tconvert(to, from, count, back, NULL, H5P_DEFAULT));
    void *memory = on_device ? device_memory(bytes) : allocate(bytes);
    for (int is_async = 0; is_async < 2; is_async++) {
        hid_t set = is_async ? events : H5ES_NONE;
        hid_t dataset = H5Dcreate2(file, "x", to, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
        OK(dataset);
        copy_memory(memory, given, bytes);
        OK(H5Dwrite_async(dataset, from, H5S_ALL, H5S_ALL, H5P_DEFAULT, memory, set));
        if (is_async) wait_for(events);
        OK(H5Dread(dataset, to, H5S_ALL, H5S_ALL, H5P_DEFAULT, found));
        CHECK(memcmp(found, stored, bytes) == 0);
        OK(H5Dread_async(dataset, from, H5S_ALL, H5S_ALL, H5P_DEFAULT, memory, set));
        if (is_async) wait_for(events);
        CHECK(memory_holds(memory, back, bytes));
        OK(H5Dclose(dataset));
        OK(H5Ldelete(file, "x", H5P_DEFAULT));
    }
    if (on_device) free_device_memory(memory);
    else free(memory);
    free(given);
    free(stored);
    free(back);
    free(found);
    OK(H5ESclose(events));
    OK(H5Sclose(space));
}

int main(void) {
    begin();
    hid_t file = H5Fcreate("signs.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    OK(file);
    hid_t gzip = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t chunk = 3000, small = FEW;
    for (int layout = 0; layout < 2; layout++)
        for (int size = 0; size < 4; size++)
            for (int many = 0; many < 2; many++) {
                hid_t types[4], dcpl = layout ? gzip : H5P_DEFAULT;
                types_of(size, types);
                OK(H5Pset_chunk(gzip, 1, many ? &chunk : &small));
                if (!size && !many && layout) OK(H5Pset_deflate(gzip, 1));
                for (int from = 0; from < 4; from++)
                    for (int to = 0; to < 4; to++) {
                        hsize_t count = many ? MANY : FEW;
                        check(file, dcpl, types[from], types[to], count, false);
                        if (has_device() && to != from)
                            check(file, dcpl, types[from], types[to], count, true);
                    }
            }
    OK(H5Pclose(gzip));
    OK(H5Fclose(file));
    return 0;
}
