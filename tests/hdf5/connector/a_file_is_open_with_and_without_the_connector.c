#include "objects.h"

/* HDF5 keeps one connector for all handles of a file. It passes elements of variable length and references
 * through that one. */
static const char *const path = "file.h5";

static hid_t native_list(void) {
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    OK(fapl);
    OK(H5Pset_vol(fapl, H5VL_NATIVE, NULL));
    return fapl;
}

static hid_t open_as(bool is_native, const char *name) {
    hid_t fapl = native_list();
    hid_t file = H5Fopen(name, H5F_ACC_RDWR, is_native ? fapl : H5P_DEFAULT);
    OK(file);
    OK(H5Pclose(fapl));
    return file;
}

static hid_t text_type(void) {
    hid_t type = H5Tcopy(H5T_C_S1);
    OK(H5Tset_size(type, H5T_VARIABLE));
    return type;
}

static hid_t of_two(void) { return H5Screate_simple(1, (hsize_t[]){2}, NULL); }

static void make(hid_t file, const char *name, hid_t type) {
    hid_t space = of_two(), dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(dataset);
    OK(H5Dclose(dataset));
    OK(H5Sclose(space));
}

static void make_files(void) {
    hid_t fapl = native_list(), file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    OK(file);
    hid_t text = text_type(), rows = H5Tvlen_create(H5T_NATIVE_INT);
    make(file, "text", text);
    make(file, "rows", rows);
    make(file, "objects", H5T_STD_REF_OBJ);
    make(file, "regions", H5T_STD_REF_DSETREG);
    make(file, "references", H5T_STD_REF);
    make(file, "n", H5T_NATIVE_INT);
    OK(H5Tclose(rows));
    OK(H5Tclose(text));
    OK(H5Fclose(file));
    hid_t outside = H5Fcreate("outside.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    OK(outside);
    OK(H5Lcreate_external(path, "text", outside, "text", H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Fclose(outside));
    OK(H5Pclose(fapl));
}

static void put(hid_t file, const char *name, hid_t type, const void *values) {
    hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    OK(dataset);
    OK(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
    OK(H5Dclose(dataset));
}

static void get(hid_t file, const char *name, hid_t type, void *values) {
    hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    OK(dataset);
    OK(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
    OK(H5Dclose(dataset));
}

static void release(hid_t type, void *values) {
    hid_t space = of_two();
    OK(H5Treclaim(type, space, H5P_DEFAULT, values));
    OK(H5Sclose(space));
}

static void check_text(hid_t from, hid_t to, int seed) {
    hid_t type = text_type();
    char first[40], *given[] = {first, "the second"}, *found[2];
    snprintf(first, sizeof first, "the first of %d", seed);
    put(from, "text", type, given);
    get(to, "text", type, found);
    CHECK(strcmp(found[0], first) == 0 && strcmp(found[1], given[1]) == 0);
    release(type, found);

    /* HDF5 fails to write an attribute that another handle of the file has changed, so each is a new one. */
    hid_t space = of_two();
    hid_t note = H5Acreate_by_name(from, "n", "note", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(note);
    OK(H5Awrite(note, type, given));
    OK(H5Aclose(note));
    note = H5Aopen_by_name(to, "n", "note", H5P_DEFAULT, H5P_DEFAULT);
    OK(note);
    OK(H5Aread(note, type, found));
    OK(H5Aclose(note));
    CHECK(strcmp(found[0], first) == 0 && strcmp(found[1], given[1]) == 0);
    release(type, found);
    OK(H5Adelete_by_name(to, "n", "note", H5P_DEFAULT));
    OK(H5Sclose(space));
    OK(H5Tclose(type));
}

static void check_rows(hid_t from, hid_t to, int seed) {
    hid_t type = H5Tvlen_create(H5T_NATIVE_INT);
    int three[] = {seed, seed + 1, seed + 2};
    hvl_t given[] = {{3, three}, {0, NULL}}, found[2];
    put(from, "rows", type, given);
    get(to, "rows", type, found);
    CHECK(found[0].len == 3 && found[1].len == 0);
    CHECK(memcmp(found[0].p, three, sizeof three) == 0);
    release(type, found);
    OK(H5Tclose(type));
}

static void check_object(hid_t object) {
    char name[8];
    OK(object);
    CHECK(H5Iget_name(object, name, sizeof name) == 2 && strcmp(name, "/n") == 0);
    OK(H5Dclose(object));
}

static void check_references(hid_t from, hid_t to) {
    hid_t space = of_two();
    hobj_ref_t objects[2], found_objects[2];
    hdset_reg_ref_t regions[2], found_regions[2];
    H5R_ref_t references[2], found[2];
    for (int i = 0; i < 2; i++) {
        OK(H5Rcreate(&objects[i], from, "n", H5R_OBJECT, -1));
        OK(H5Rcreate(&regions[i], from, "n", H5R_DATASET_REGION, space));
    }
    OK(H5Rcreate_object(from, "n", H5P_DEFAULT, &references[0]));
    OK(H5Rcreate_region(from, "n", space, H5P_DEFAULT, &references[1]));
    put(from, "objects", H5T_STD_REF_OBJ, objects);
    get(to, "objects", H5T_STD_REF_OBJ, found_objects);
    put(from, "regions", H5T_STD_REF_DSETREG, regions);
    get(to, "regions", H5T_STD_REF_DSETREG, found_regions);
    put(from, "references", H5T_STD_REF, references);
    get(to, "references", H5T_STD_REF, found);
    for (int i = 0; i < 2; i++) {
        check_object(H5Rdereference2(to, H5P_DEFAULT, H5R_OBJECT, &found_objects[i]));
        check_object(H5Rdereference2(to, H5P_DEFAULT, H5R_DATASET_REGION, &found_regions[i]));
        check_object(H5Ropen_object(&found[i], H5P_DEFAULT, H5P_DEFAULT));
        OK(H5Rdestroy(&references[i]));
        OK(H5Rdestroy(&found[i]));
    }
    OK(H5Sclose(space));
}

/* HDF5 opens the file once more, for the link. */
static void check_link(bool is_native, hid_t to, int seed) {
    hid_t outside = open_as(is_native, "outside.h5"), type = text_type();
    char first[40], *given[] = {first, ""}, *found[2];
    snprintf(first, sizeof first, "by a link, %d", seed);
    put(outside, "text", type, given);
    get(to, "text", type, found);
    CHECK(strcmp(found[0], first) == 0);
    release(type, found);
    OK(H5Tclose(type));
    OK(H5Fclose(outside));
}

static void check_all(hid_t from, hid_t to, int seed) {
    check_text(from, to, seed);
    check_rows(from, to, seed);
    check_references(from, to);
    check_link(false, to, seed);
    check_link(true, to, seed);
}

static herr_t open_group(hid_t place, const char *name, const H5L_info2_t *info, void *text) {
    (void)place, (void)info;
    hid_t group = H5Gopen2(place, "/", H5P_DEFAULT);
    OK(group);
    OK(H5Gclose(group));
    return strcmp(name, text) == 0;
}

static void check_file(hid_t file) {
    char name[20];
    OK(file);
    CHECK(H5Fget_name(file, name, sizeof name) == (ssize_t)strlen(path) && strcmp(name, path) == 0);
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    CHECK(H5Literate2(file, H5_INDEX_NAME, H5_ITER_INC, NULL, open_group, "text") == 1);
    check_text(file, file, 4);
    hid_t again = H5Freopen(file);
    OK(again);
    OK(H5Fclose(file));
    check_text(again, again, 5);
    OK(H5Fclose(again));
}

/* An object keeps its file open, and HDF5 makes an identifier of the file for its references. */
static void check_without_file(bool is_native) {
    hid_t file = open_as(is_native, path), dataset = H5Dopen2(file, "references", H5P_DEFAULT);
    OK(dataset);
    OK(H5Fclose(file));
    H5R_ref_t found[2];
    OK(H5Dread(dataset, H5T_STD_REF, H5S_ALL, H5S_ALL, H5P_DEFAULT, found));
    check_file(H5Iget_file_id(dataset));
    OK(H5Dclose(dataset));
    for (int i = 0; i < 2; i++) {
        hid_t object = H5Ropen_object(&found[i], H5P_DEFAULT, H5P_DEFAULT);
        OK(object);
        check_file(H5Iget_file_id(object));
        check_object(object);
        OK(H5Rdestroy(&found[i]));
    }
}

int main(void) {
    begin();
    make_files();
    for (int native_is_first = 0; native_is_first < 2; native_is_first++) {
        for (int first_closes = 0; first_closes < 2; first_closes++) {
            hid_t first = open_as(native_is_first, path), second = open_as(!native_is_first, path);
            check_all(first, second, 1);
            check_all(second, first, 2);
            check_without_file(true);
            check_without_file(false);
            hid_t left = first_closes ? second : first;
            OK(H5Fclose(first_closes ? first : second));
            check_all(left, left, 3);
            check_without_file(true);
            check_without_file(false);
            OK(H5Fclose(left));
            CHECK(H5Fget_obj_count(H5F_OBJ_ALL, H5F_OBJ_ALL) == 0);
        }
    }
    return 0;
}
