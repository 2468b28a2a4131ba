#include "ranks.h"

/* It leaves its event set open to the end. The close of the file waits for its bytes. */
int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5"), list = transfer_list(true), events = new_events();
    hid_t dataset = create_parts(file, "x", H5P_DEFAULT);
    void *memory = new_part(1);
    for (int i = 0; i < 5; i++) {
        write_part(dataset, memory, list, events);
        if (rank != 1) finish_all(events);
    }
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    OK(H5Pclose(list));
    check_parts("x.h5", "x", 1);
    if (rank != 1) close_events(events);
    free_memory(memory);
    return end_ranks();
}
