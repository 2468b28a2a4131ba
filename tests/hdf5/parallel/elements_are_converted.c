#include "ranks.h"

/* By conversions that the engine has. */
static void check(hid_t file, const char *name, hid_t type, hid_t dcpl, bool is_collective) {
    hid_t list = transfer_list(is_collective), events = new_events();
    hid_t dataset = create_parts_of(file, name, type, EACH, dcpl);
    void *memory = new_part(1), *found = new_memory(EACH * sizeof(int));
    write_part(dataset, memory, list, events);
    finish_all(events);
    barrier();
    read_part(dataset, (rank + 1) % ranks, found, list, events);
    close_events(events);
    CHECK(memory_has_values(found, EACH, seed_of((rank + 1) % ranks, 1)));
    OK(H5Dclose(dataset));
    OK(H5Pclose(list));
    free_memory(found);
    free_memory(memory);
}

/* Half of each record is written again with another type, which only HDF5 converts. */
static void check_records(hid_t file, bool is_collective) {
    typedef struct {
        int first;
        double second;
    } record;
    enum { SOME = 5000 };
    hid_t whole = H5Tcreate(H5T_COMPOUND, sizeof(record)), half = H5Tcreate(H5T_COMPOUND, sizeof(float));
    OK(H5Tinsert(whole, "first", HOFFSET(record, first), H5T_NATIVE_INT));
    OK(H5Tinsert(whole, "second", HOFFSET(record, second), H5T_NATIVE_DOUBLE));
    OK(H5Tinsert(half, "second", 0, H5T_NATIVE_FLOAT));
    hid_t list = transfer_list(is_collective), events = new_events();
    hid_t dataset = create_parts_of(file, is_collective ? "c" : "i", whole, SOME, H5P_DEFAULT);
    record *records = allocate(SOME * sizeof *records), *read = allocate(SOME * sizeof *read);
    float *halves = allocate(SOME * sizeof *halves);
    for (int i = 0; i < SOME; i++) {
        records[i] = (record){i * 3 + rank, i};
        halves[i] = (float)(i + 0.5);
    }
    void *memory = new_memory_with(records, SOME * sizeof *records);
    void *some = new_memory_with(halves, SOME * sizeof *halves);
    selection at = select_from(dataset, (hsize_t)rank * SOME, SOME);
    OK(H5Dwrite_async(dataset, whole, at.memory, at.file, list, memory, events));
    /* HDF5 1.14.4 alone never returns if only some ranks need what the file has already. */
    const bool is_half = is_alone() || rank == 0;
    OK(H5Dwrite_async(dataset, is_half ? half : whole, at.memory, at.file, list,
                      is_half ? some : memory, events));
    close_events(events);
    OK(H5Dread(dataset, whole, at.memory, at.file, list, read));
    for (int i = 0; i < SOME; i++) {
        CHECK(read[i].first == i * 3 + rank);
        CHECK(read[i].second == (is_half ? i + 0.5 : i));
    }
    close_selection(at);
    OK(H5Dclose(dataset));
    OK(H5Tclose(whole));
    OK(H5Tclose(half));
    OK(H5Pclose(list));
    free_memory(memory);
    free_memory(some);
    free(halves);
    free(records);
    free(read);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5"), chunks = chunked(EACH / 3 + 1);
    check(file, "doubles", H5T_IEEE_F64LE, H5P_DEFAULT, true);
    check(file, "doubles, independently", H5T_IEEE_F64BE, H5P_DEFAULT, false);
    check(file, "other order", H5T_STD_I32BE, chunks, true);
    check(file, "wider", H5T_STD_I64LE, chunks, false);
    check_records(file, true);
    check_records(file, false);
    OK(H5Pclose(chunks));
    OK(H5Fclose(file));
    check_parts("x.h5", "doubles", 1);
    check_parts("x.h5", "doubles, independently", 1);
    check_parts("x.h5", "other order", 1);
    check_parts("x.h5", "wider", 1);
    return end_ranks();
}
