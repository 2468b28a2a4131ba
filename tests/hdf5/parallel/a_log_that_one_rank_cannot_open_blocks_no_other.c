#include "ranks.h"

int main(int count, char **words) {
    const char *connector = getenv("HDF5_VOL_CONNECTOR");
    char options[4096];
    CHECK(MPI_Init(&count, &words) == MPI_SUCCESS);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    alarm(30);
    snprintf(options, sizeof options, "%s;log=%s", connector ? connector : "", rank == 1 ? "none/log" : "log");
    if (connector) CHECK(setenv("HDF5_VOL_CONNECTOR", options, 1) == 0);
    if (connector && rank == 0) CHECK(setenv("HDF5_ASYNC_MAX_MEM_MB", "much", 1) == 0);
    begin();
    hid_t file = create_shared("x.h5"), dataset = create_parts(file, "x", H5P_DEFAULT);
    hid_t list = transfer_list(true), events = new_events();
    int *mine = values(EACH, seed_of(rank, 1));
    write_part(dataset, mine, list, events);
    close_events(events);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    OK(H5Pclose(list));
    free(mine);
    check_parts("x.h5", "x", 1);
    return end_ranks();
}
