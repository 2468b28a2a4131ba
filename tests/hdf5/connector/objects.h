/* What the programs here use: files and groups of whichever connector and driver there are. */
#ifndef OBJECTS_H
#define OBJECTS_H

#include "../check.h"

#include <H5VLconnector.h>
#include <H5VLconnector_passthru.h>

static inline hid_t make_file(const char *path) {
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    OK(file);
    return file;
}

static inline hid_t make_group(hid_t place, const char *name) {
    hid_t group = H5Gcreate2(place, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(group);
    return group;
}

#endif
