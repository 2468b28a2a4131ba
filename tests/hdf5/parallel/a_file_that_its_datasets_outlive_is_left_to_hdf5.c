#include "ranks.h"

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t access = shared_access(), events = new_events();
    OK(H5Pset_fclose_degree(access, H5F_CLOSE_WEAK));
    hid_t file = H5Fcreate("x.h5", H5F_ACC_TRUNC, H5P_DEFAULT, access), filter = chunked(EACH / 3);
    OK(file);
    OK(H5Pset_fletcher32(filter));
    hid_t checked = create_parts(file, "checked", filter);
    hid_t plain = create_parts(file, "plain", H5P_DEFAULT);
    hid_t together = transfer_list(true), alone = transfer_list(false);
    OK(H5Fclose(file));

    int *found = allocate(EACH * sizeof *found);
    for (int seed = 1; seed <= 2; seed++) {
        int *mine = values(EACH, seed_of(rank, seed));
        write_part(plain, mine, alone, events);
        CHECK(count_of(events) == 0);
        write_part(checked, mine, together, events);
        read_part(checked, rank, found, together, events);
        CHECK(count_of(events) == 0);
        CHECK(memcmp(found, mine, EACH * sizeof *found) == 0);
        free(mine);
        /* An identifier of the file by its dataset. */
        file = H5Iget_file_id(plain);
        OK(file);
        OK(H5Fclose(file));
    }
    OK(H5Dclose(plain));
    OK(H5Dclose(checked));
    OK(H5ESclose(events));
    OK(H5Pclose(filter));
    OK(H5Pclose(access));
    OK(H5Pclose(together));
    OK(H5Pclose(alone));
    free(found);
    check_parts("x.h5", "plain", 2);
    check_parts("x.h5", "checked", 2);
    return end_ranks();
}
