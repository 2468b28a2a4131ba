#include "events.h"

enum { CHUNK = MANY / 8 };

/* H5Dread_chunk, H5Dget_chunk_info and H5Dget_storage_size look at what is stored. */
int main(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events(), dcpl = chunked(CHUNK);
    hid_t dataset = create_dataset(file, "x", MANY, dcpl);
    int *these = values(MANY, 1), *chunk = allocate(CHUNK * sizeof(int));
    void *memory = new_memory_with(these, MANY * sizeof(int));
    OK(write_later(dataset, memory, events));
    CHECK(count_of(events) == 1);
    CHECK(H5Dget_storage_size(dataset) == MANY * sizeof(int));

    int *others = values(MANY, 2);
    copy_memory(memory, others, MANY * sizeof(int));
    OK(write_later(dataset, memory, events));
    hsize_t offset = 3 * CHUNK, chunks = 0;
    uint32_t filters = 1;
#if H5_VERSION_GE(2, 0, 0)
    size_t size = CHUNK * sizeof(int);
    OK(H5Dread_chunk2(dataset, H5P_DEFAULT, &offset, &filters, chunk, &size));
#else
    OK(H5Dread_chunk(dataset, H5P_DEFAULT, &offset, &filters, chunk));
#endif
    CHECK(memcmp(chunk, others + offset, CHUNK * sizeof(int)) == 0);
    OK(H5Dget_num_chunks(dataset, H5S_ALL, &chunks));
    CHECK(chunks == MANY / CHUNK);

    copy_memory(memory, these, MANY * sizeof(int));
    OK(write_later(dataset, memory, events));
    OK(H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, &offset, CHUNK * sizeof(int), chunk));
    memcpy(these + offset, chunk, CHUNK * sizeof(int));
    finish_all(events);
    void *again = new_memory(MANY * sizeof(int));
    OK(read_later(dataset, again, events));
    close_events(events);
    CHECK(memory_holds(again, these, MANY * sizeof(int)));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    OK(H5Pclose(dcpl));
    free_memory(memory);
    free_memory(again);
    free(these);
    free(others);
    free(chunk);
    return 0;
}
