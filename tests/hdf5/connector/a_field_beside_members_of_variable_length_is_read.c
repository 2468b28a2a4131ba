/* HDF5 describes a record as it is in memory. Members of variable length and references have another size
 * in the file. */
#include "../memory.h"

enum { COUNT = 20000, PART = COUNT / 2 };

typedef struct {
    int key;
    char *text;
    short small;
    hvl_t sequence;
    hobj_ref_t object;
    H5R_ref_t reference;
    double number;
} record;

static hid_t record_type(void) {
    hid_t made = H5Tcreate(H5T_COMPOUND, sizeof(record)), text = H5Tcopy(H5T_C_S1);
    OK(H5Tset_size(text, H5T_VARIABLE));
    hid_t sequence = H5Tvlen_create(H5T_NATIVE_INT);
    OK(H5Tinsert(made, "key", offsetof(record, key), H5T_NATIVE_INT));
    OK(H5Tinsert(made, "text", offsetof(record, text), text));
    OK(H5Tinsert(made, "small", offsetof(record, small), H5T_NATIVE_SHORT));
    OK(H5Tinsert(made, "sequence", offsetof(record, sequence), sequence));
    OK(H5Tinsert(made, "object", offsetof(record, object), H5T_STD_REF_OBJ));
    OK(H5Tinsert(made, "reference", offsetof(record, reference), H5T_STD_REF));
    OK(H5Tinsert(made, "number", offsetof(record, number), H5T_NATIVE_DOUBLE));
    OK(H5Tclose(text));
    OK(H5Tclose(sequence));
    return made;
}

static void write_records(hid_t file, const char *name, hid_t dcpl, hsize_t count) {
    hid_t type = record_type();
    hsize_t all = COUNT, start = 0;
    hid_t space = H5Screate_simple(1, &all, NULL), memory = H5Screate_simple(1, &count, NULL);
    hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(dataset);
    record *records = allocate(COUNT * sizeof *records);
    memset(records, 0, COUNT * sizeof *records);
    for (int i = 0; i < COUNT; i++) {
        records[i].key = i;
        records[i].text = "a text";
        records[i].small = (short)i;
        records[i].number = i / 2.0;
    }
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &count, NULL));
    OK(H5Dwrite(dataset, type, memory, space, H5P_DEFAULT, records));
    free(records);
    OK(H5Dclose(dataset));
    OK(H5Sclose(space));
    OK(H5Sclose(memory));
    OK(H5Tclose(type));
}

static void check_field(hid_t dataset, hsize_t count, bool on_device) {
    hid_t number = H5Tcreate(H5T_COMPOUND, sizeof(double));
    OK(H5Tinsert(number, "number", 0, H5T_NATIVE_DOUBLE));
    double *expected = allocate(COUNT * sizeof *expected);
    for (hsize_t i = 0; i < COUNT; i++) expected[i] = i < count ? (double)i / 2 : 0;
    size_t bytes = COUNT * sizeof *expected;
    void *found = on_device ? device_memory(bytes) : allocate(bytes);
    hid_t events = H5EScreate();
    OK(events);
    OK(H5Dread_async(dataset, number, H5S_ALL, H5S_ALL, H5P_DEFAULT, found, events));
    size_t left = 0;
    hbool_t failed = false;
    OK(H5ESwait(events, H5ES_WAIT_FOREVER, &left, &failed));
    CHECK(left == 0 && !failed);
    OK(H5ESclose(events));
    CHECK(memory_holds(found, expected, bytes));
    OK(H5Dread(dataset, number, H5S_ALL, H5S_ALL, H5P_DEFAULT, found));
    CHECK(memory_holds(found, expected, bytes));
    if (on_device) free_device_memory(found);
    else free(found);
    free(expected);
    OK(H5Tclose(number));
}

int main(void) {
    begin();
    hid_t file = H5Fcreate("fields.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    OK(file);
    hid_t chunked = H5Pcreate(H5P_DATASET_CREATE), gzip = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t chunk = 1000;
    OK(H5Pset_chunk(chunked, 1, &chunk));
    OK(H5Pset_chunk(gzip, 1, &chunk));
    OK(H5Pset_deflate(gzip, 1));
    write_records(file, "contiguous", H5P_DEFAULT, COUNT);
    write_records(file, "chunked", chunked, COUNT);
    write_records(file, "gzip", gzip, COUNT);
    write_records(file, "partly", chunked, PART);
    OK(H5Pclose(chunked));
    OK(H5Pclose(gzip));
    OK(H5Fclose(file));
    file = H5Fopen("fields.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
    OK(file);
    const char *names[4] = {"contiguous", "chunked", "gzip", "partly"};
    for (int i = 0; i < 4; i++) {
        hid_t dataset = H5Dopen2(file, names[i], H5P_DEFAULT);
        OK(dataset);
        check_field(dataset, i == 3 ? PART : COUNT, false);
        if (has_device()) check_field(dataset, i == 3 ? PART : COUNT, true);
        OK(H5Dclose(dataset));
    }
    OK(H5Fclose(file));
    return 0;
}
