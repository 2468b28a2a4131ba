#include "ranks.h"

/* Nothing was waited for: what was begun is in the file. */
int main(int count, char **words) {
    if (count > 1) {
        begin();
        ranks = atoi(words[1]);
        hid_t file = open_by_sec2("x.h5", H5F_ACC_RDONLY);
        for (int i = 0; i < 2; i++) {
            hid_t dataset = H5Dopen2(file, i ? "b" : "a", H5P_DEFAULT);
            OK(dataset);
            CHECK(dataset_has_parts(dataset, 1));
            OK(H5Dclose(dataset));
        }
        OK(H5Fclose(file));
        return 0;
    }
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5"), chunks = chunked(EACH / 3), list = transfer_list(true);
    hid_t events = new_events();
    void *memory = new_part(1);
    for (int i = 0; i < 2; i++) {
        hid_t dataset = create_parts(file, i ? "b" : "a", i ? chunks : H5P_DEFAULT);
        write_part(dataset, memory, list, events);
        OK(H5Dclose_async(dataset, events));
    }
    OK(H5Fclose_async(file, events));
    MPI_Finalize();
    OK(H5close());
    has_ended = true;
    char number[16];
    snprintf(number, sizeof number, "%d", ranks);
    if (rank == 0) CHECK(run(words[0], number) == 0);
    return 0;
}
