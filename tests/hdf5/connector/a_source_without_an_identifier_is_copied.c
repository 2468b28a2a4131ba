/* An open virtual dataset keeps its sources and their files open without identifiers. HDF5 (1.14.4, 2.0.0, 2.2.0) copies
 * what it has cached of them wrongly, or writes past the end of its memory. The copy has what was written last,
 * whichever name the mapping has for the source, and whichever link leads to it. */
#include "objects.h"

enum { COUNT = 1 << 16, CHUNK = 1 << 13 };

static int these[COUNT], found[COUNT];

static void make_sources(const char *path) {
    const hsize_t chunk = CHUNK;
    hid_t file = make_file(path), group = make_group(file, "g"), list = H5Pcreate(H5P_DATASET_CREATE);
    OK(list);
    hid_t plain = create_dataset(group, "plain", COUNT, list);
    OK(write_whole(plain, these));
    OK(H5Pset_chunk(list, 1, &chunk));
    OK(H5Pset_scaleoffset(list, H5Z_SO_INT, H5Z_SO_INT_MINBITS_DEFAULT));
    hid_t filtered = create_dataset(group, "filtered0", COUNT, list);
    OK(write_whole(filtered, these));
    OK(H5Dclose(filtered));
    OK(H5Dclose(plain));
    OK(H5Pclose(list));
    OK(H5Gclose(group));
    OK(H5Fclose(file));
}

/* All elements of a dataset, mapped to one of another file. */
static hid_t make_virtual(hid_t place, const char *name, const char *path, const char *source) {
    const hsize_t count = COUNT, none = 0, all = H5S_UNLIMITED;
    hid_t list = H5Pcreate(H5P_DATASET_CREATE), from = H5Screate_simple(1, &count, NULL);
    bool is_numbered = strchr(source, '%') != NULL;
    hid_t to = H5Screate_simple(1, &count, is_numbered ? &all : NULL);
    OK(list);
    OK(from);
    OK(to);
    if (is_numbered) OK(H5Sselect_hyperslab(to, H5S_SELECT_SET, &none, &count, &all, &count));
    OK(H5Pset_virtual(list, to, path, source, from));
    hid_t dataset = H5Dcreate2(place, name, H5T_NATIVE_INT, to, H5P_DEFAULT, list, H5P_DEFAULT);
    OK(dataset);
    OK(H5Sclose(to));
    OK(H5Sclose(from));
    OK(H5Pclose(list));
    return dataset;
}

static void check_copy(hid_t file, const char *name) {
    hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    OK(dataset);
    OK(read_whole(dataset, found));
    CHECK(memcmp(found, these, sizeof these) == 0);
    OK(H5Dclose(dataset));
}

/* Changes part of what is mapped, reads it, and copies its source by a link, and the group of a link. */
static void copy_what_is_mapped(hid_t file, hid_t mapped, const char *link, const char *links, const char *in_copy) {
    static int last;
    const hsize_t count = COUNT, start = 10 + last % CHUNK, few = 5;
    hid_t space = H5Screate_simple(1, &count, NULL), memory = H5Screate_simple(1, &few, NULL);
    OK(space);
    OK(memory);
    OK(read_whole(mapped, found));
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &few, NULL));
    last++;
    for (hsize_t at = start; at < start + few; at++) these[at] = last;
    OK(H5Dwrite(mapped, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, these + start));
    OK(H5Sclose(memory));
    OK(H5Sclose(space));
    char name[32];
    snprintf(name, sizeof name, "copy%d", last);
    OK(H5Ocopy(file, link, file, name, H5P_DEFAULT, H5P_DEFAULT));
    check_copy(file, name);
    OK(H5Dwrite(mapped, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, these));
    OK(read_whole(mapped, found));
    hid_t list = H5Pcreate(H5P_OBJECT_COPY);
    OK(list);
    OK(H5Pset_copy_object(list, H5O_COPY_EXPAND_EXT_LINK_FLAG | H5O_COPY_EXPAND_SOFT_LINK_FLAG));
    snprintf(name, sizeof name, "copies%d", last);
    OK(H5Ocopy(file, links, file, name, list, H5P_DEFAULT));
    OK(H5Pclose(list));
    snprintf(name, sizeof name, "copies%d/%s", last, in_copy);
    check_copy(file, name);
}

int main(void) {
    begin();
    make_sources("source.h5");
    CHECK(symlink("source.h5", "another_name.h5") == 0);
    hid_t file = make_file("a.h5"), links = make_group(file, "links"), deeper = make_group(file, "deeper");
    OK(H5Lcreate_external("source.h5", "g/filtered0", links, "filtered", H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Lcreate_external("source.h5", "g/plain", links, "plain", H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Lcreate_external("source.h5", "g", deeper, "g", H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Lcreate_soft("/nowhere", deeper, "dangling", H5P_DEFAULT, H5P_DEFAULT));
    const struct {
        const char *path, *source, *link, *in_copy;
    } ways[] = {
        {"source.h5", "g/filtered0", "links/filtered", "g/filtered0"},
        {"source.h5", "g/plain", "links/plain", "g/plain"},
        {"another_name.h5", "g/filtered0", "links/filtered", "g/filtered0"},
        {"source.h5", "g/filtered%b", "links/filtered", "g/filtered0"},
    };
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        char name[32];
        snprintf(name, sizeof name, "virtual%zu", i);
        memset(these, 0, sizeof these);
        make_sources("source.h5");
        hid_t mapped = make_virtual(file, name, ways[i].path, ways[i].source);
        copy_what_is_mapped(file, mapped, ways[i].link, "deeper", ways[i].in_copy);
        OK(H5Dclose(mapped));
    }
    OK(H5Gclose(deeper));
    OK(H5Gclose(links));
    OK(H5Fclose(file));
    return 0;
}
