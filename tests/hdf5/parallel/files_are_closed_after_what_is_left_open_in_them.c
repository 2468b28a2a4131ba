#include "ranks.h"

/* A file cannot be closed before its datasets. Only one rank has left one open, and the ranks close
 * each file together. */
static void leave_open(void) {
    hid_t files[2] = {create_shared("a.h5"), create_shared("b.h5")};
    int *mine = values(EACH, seed_of(rank, 1));
    hid_t list = transfer_list(false), events = new_events();
    for (int i = 0; i < 2; i++) {
        hid_t dataset = create_parts(files[i], "x", H5P_DEFAULT);
        write_part(dataset, mine, list, events);
        finish_all(events);
        if (i == 1 || rank != 0) OK(H5Dclose(dataset));
    }
    OK(H5ESclose(events));
    OK(H5Pclose(list));
    free(mine);
}

int main(int count, char **words) {
    if (count > 1) {
        begin();
        ranks = atoi(words[1]);
        for (int i = 0; i < 2; i++) {
            hid_t file = open_by_sec2(i ? "b.h5" : "a.h5", H5F_ACC_RDONLY);
            hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
            OK(dataset);
            CHECK(dataset_has_parts(dataset, 1));
            OK(H5Dclose(dataset));
            OK(H5Fclose(file));
        }
        return 0;
    }
    begin_ranks(count, words);
    leave_open();
    OK(H5close());
    begin();
    leave_open();
    MPI_Finalize();
    has_ended = true;
    char number[16];
    snprintf(number, sizeof number, "%d", ranks);
    if (rank == 0) CHECK(run(words[0], number) == 0);
    return 0;
}
