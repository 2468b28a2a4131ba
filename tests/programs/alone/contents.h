/* How datasets are named and made, and what files hold. */
#ifndef CONTENTS_H
#define CONTENTS_H

#include "line.h"
#include "types.h"

#include <inttypes.h>

static void name_of(long slot, char name[8])
{
    snprintf(name, 8, "d%02ld", slot);
}

static void add_filter(hid_t properties, long filter, int is_number)
{
    if (filter == 1)
        H5Pset_deflate(properties, 1);
    else if (filter == 2)
        H5Pset_shuffle(properties);
    else if (filter == 3)
        H5Pset_fletcher32(properties);
    else if (filter == 4 && is_number)
        H5Pset_nbit(properties);
}

/* Reads a whole dataset into memory of the host, and prints its hash. */
static void show(hid_t id, const char *name)
{
    hid_t type = H5Dget_type(id), space = H5Dget_space(id);
    hid_t native = H5Tget_class(type) == H5T_BITFIELD ? H5Tcopy(type) : H5Tget_native_type(type, H5T_DIR_DEFAULT);
    hssize_t count = H5Sget_simple_extent_npoints(space);
    size_t size = H5Tget_size(native);
    unsigned char *bytes = calloc((size_t)count + 1, size);
    int status = H5Dread(id, native, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes);
    uint64_t hash = 1469598103934665603ull;
    if (status >= 0)
        for_each_part(bytes, (size_t)count, native, hash_part, &hash);
    printf("%d %s has %lld, %d: %016" PRIx64 "\n", line, name, (long long)count, status < 0 ? -1 : 0, hash);
    free(bytes);
    H5Tclose(native);
    H5Tclose(type);
    H5Sclose(space);
}

static herr_t visited(hid_t group, const char *name, const H5O_info2_t *about, void *_)
{
    (void)_;
    if (about->type != H5O_TYPE_DATASET)
        return 0;
    hid_t id = H5Dopen2(group, name, H5P_DEFAULT);
    show(id, name);
    if (H5Aexists(id, "note") > 0) {
        int value = -1;
        hid_t attribute = H5Aopen(id, "note", H5P_DEFAULT);
        H5Aread(attribute, H5T_NATIVE_INT, &value);
        report(name, value);
        H5Aclose(attribute);
    }
    H5Dclose(id);
    return 0;
}

static int visit(hid_t file)
{
    return H5Ovisit3(file, H5_INDEX_NAME, H5_ITER_INC, visited, NULL, H5O_INFO_BASIC);
}

static int dump(int count, char **folders)
{
    for (int i = 0; i < count; i++) {
        printf("in %s\n", folders[i]);
        for (int file = 0; file < 2; file++) {
            char path[4096];
            snprintf(path, sizeof path, "%s/%s.h5", folders[i], file ? "other" : "main");
            hid_t id = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
            report("visits", id < 0 ? -1 : visit(id));
            if (id >= 0)
                H5Fclose(id);
        }
    }
    return 0;
}
#endif
