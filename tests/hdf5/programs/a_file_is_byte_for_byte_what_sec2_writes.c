#include "../check.h"

static void make_tree(const char *path, hid_t fapl) {
    const hsize_t chunk = 1000, limit = H5S_UNLIMITED, more = 5000, fewer = 2500;
    hsize_t count = 3000;
    hid_t fcpl = H5Pcreate(H5P_FILE_CREATE), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_userblock(fcpl, 1024));
    /* HDF5 2 tracks the times of groups as well, in the format that it writes by default. */
    hid_t gcpl = H5Pcreate(H5P_GROUP_CREATE);
    OK(H5Pset_obj_track_times(dcpl, false));
    OK(H5Pset_obj_track_times(gcpl, false));
    OK(H5Pset_obj_track_times(fcpl, false));
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, fcpl, fapl);
    OK(file);
    hid_t one = H5Screate(H5S_SCALAR);
    for (int i = 0; i < 200; i++) {
        char name[24];
        snprintf(name, sizeof name, "attribute %d", i);
        hid_t attribute =
            H5Acreate2(file, name, H5T_NATIVE_INT, one, H5P_DEFAULT, H5P_DEFAULT);
        OK(attribute);
        OK(H5Awrite(attribute, H5T_NATIVE_INT, &i));
        OK(H5Aclose(attribute));
    }
    int *these = values(5000, 1);
    hid_t plain = create_dataset(file, "plain", 5000, dcpl);
    OK(write_whole(plain, these));
    OK(H5Pset_chunk(dcpl, 1, &chunk));
    hid_t space = H5Screate_simple(1, &count, &limit);
    hid_t chunked =
        H5Dcreate2(file, "chunked", H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(write_whole(chunked, these));
    OK(H5Dset_extent(chunked, &more));
    OK(write_whole(chunked, these));
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    OK(H5Dset_extent(chunked, &fewer));
    OK(H5Dclose(chunked));
    OK(H5Dclose(plain));
    OK(H5Gclose(H5Gcreate2(file, "group", H5P_DEFAULT, gcpl, H5P_DEFAULT)));
    OK(H5Lmove(file, "plain", file, "group/moved", H5P_DEFAULT, H5P_DEFAULT));
    /* The time of its creation would stay in the file. */
    hid_t without_times = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_obj_track_times(without_times, false));
    hid_t last = create_dataset(file, "last", 4000, without_times);
    OK(H5Dclose(last));
    OK(H5Pclose(without_times));
    OK(H5Ldelete(file, "last", H5P_DEFAULT));
    OK(H5Fclose(file));
    OK(H5Sclose(space));
    OK(H5Sclose(one));
    OK(H5Pclose(dcpl));
    OK(H5Pclose(gcpl));
    OK(H5Pclose(fcpl));
    free(these);
}

static void *all_bytes(const char *path, size_t size) {
    void *bytes = allocate(size);
    int descriptor = open(path, O_RDONLY);
    CHECK(descriptor >= 0 && read(descriptor, bytes, size) == (ssize_t)size);
    close(descriptor);
    return bytes;
}

int main(void) {
    begin();
    make_tree("ours.h5", H5P_DEFAULT);
    make_tree("theirs.h5", sec2());
    CHECK(size_of_file("ours.h5") == size_of_file("theirs.h5"));
    size_t size = (size_t)size_of_file("ours.h5");
    CHECK(memcmp(all_bytes("ours.h5", size), all_bytes("theirs.h5", size), size) == 0);
    return 0;
}
