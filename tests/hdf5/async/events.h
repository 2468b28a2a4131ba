/* What the programs here use: event sets, datasets large enough to be moved by the engine, and the
 * failures of operations in the background. The programs run on the connector. */
#ifndef EVENTS_H
#define EVENTS_H

#include "../faults.h"

/* Elements; more than HDF5 would keep in a buffer of its own. */
enum { MANY = 1 << 20 };

/* Options of the connector, besides those it is run with. */
static inline void add_options(const char *options) {
    const char *connector = getenv("HDF5_VOL_CONNECTOR");
    CHECK(connector != NULL);
    char text[4096];
    snprintf(text, sizeof text, "%s;%s", connector, options);
    CHECK(setenv("HDF5_VOL_CONNECTOR", text, 1) == 0);
}

static inline void begin_with(const char *options) {
    add_options(options);
    begin();
}

/* Calls of HDF5 that the driver carries out meanwhile stay on their thread, which the gate lets pass. */
static inline void begin_with_one_worker(void) {
    CHECK(setenv("PENSTOCK_OPTIONS", "threads=1", 1) == 0);
    begin();
}

static inline hid_t make_file(const char *path) {
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    OK(file);
    return file;
}

static inline hid_t look_at_file(const char *path) {
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    OK(file);
    return file;
}

static inline bool file_has_values(const char *path, const char *name, size_t count, int seed) {
    hid_t file = look_at_file(path);
    bool has = has_values(file, name, count, seed);
    OK(H5Fclose(file));
    return has;
}

static inline hid_t new_events(void) {
    hid_t events = H5EScreate();
    OK(events);
    return events;
}

static inline size_t count_of(hid_t events) {
    size_t count;
    OK(H5ESget_count(events, &count));
    return count;
}

static inline herr_t write_later(hid_t dataset, const void *from, hid_t events) {
    return H5Dwrite_async(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, from, events);
}

static inline herr_t read_later(hid_t dataset, void *to, hid_t events) {
    return H5Dread_async(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, to, events);
}

/* Starts a write whose system calls are held: its operation is pending, and cannot end. */
static inline void write_and_hold(hid_t dataset, const void *from, hid_t events) {
    const size_t before = count_of(events);
    hold();
    OK(write_later(dataset, from, events));
    CHECK(count_of(events) == before + 1);
    wait_for_held_call();
}

static inline void finish_all(hid_t events) {
    size_t left = 1;
    hbool_t failed = true;
    OK(H5ESwait(events, H5ES_WAIT_FOREVER, &left, &failed));
    CHECK(!failed);
    CHECK(left == 0);
}

static inline void close_events(hid_t events) {
    finish_all(events);
    OK(H5ESclose(events));
}

/* The error stack of the only failed operation as text. Checks the name of its call. */
static inline const char *failure_of(hid_t events, const char *call) {
    static char text[8192];
    size_t left, count = 0, cleared = 0;
    hbool_t failed = false;
    OK(H5ESwait(events, H5ES_WAIT_FOREVER, &left, &failed));
    CHECK(failed);
    OK(H5ESget_err_status(events, &failed));
    CHECK(failed);
    OK(H5ESget_err_count(events, &count));
    CHECK(count == 1);
    H5ES_err_info_t info;
    memset(&info, 0, sizeof info);
    OK(H5ESget_err_info(events, 1, &info, &cleared));
    CHECK(cleared == 1);
    CHECK(strcmp(info.api_name, call) == 0);
    CHECK(strstr(info.api_args, "es_id") != NULL);
    CHECK(info.app_line_num > 0);
    CHECK(H5Eget_num(info.err_stack_id) > 0);
    text[0] = 0;
    OK(H5Ewalk2(info.err_stack_id, H5E_WALK_UPWARD, append_description, text));
    OK(H5Eclose_stack(info.err_stack_id));
    OK(H5free_memory(info.api_name));
    OK(H5free_memory(info.api_args));
    OK(H5free_memory(info.app_file_name));
    OK(H5free_memory(info.app_func_name));
    return text;
}

static inline void check_says(const char *file, int line, const char *text, const char *words) {
    if (strstr(text, words) != NULL) return;
    fprintf(stderr, "%s:%d: this text does not contain \"%s\": %s\n", file, line, words, text);
    exit(1);
}

#define CHECK_SAYS(text, words) check_says(__FILE__, __LINE__, text, words)

/* Lets what is held go on a while later, when the program is waiting for it. */
static inline void *go_on_later(void *unused) {
    usleep(100000);
    release_held();
    return unused;
}

static inline void let_go_on_soon(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, go_on_later, NULL) == 0);
    CHECK(pthread_detach(thread) == 0);
}

/* Makes a dataset "x", all of which HDF5 fills when it allocates its storage: at the first write. */
static inline hid_t filled_dataset(hid_t file, hsize_t count) {
    int fill = 5;
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_fill_value(dcpl, H5T_NATIVE_INT, &fill));
    hid_t dataset = create_dataset(file, "x", count, dcpl);
    OK(H5Pclose(dcpl));
    return dataset;
}

/* The bytes of a selection in one dimension. */
static inline hid_t slab(hsize_t whole, hsize_t start, hsize_t count) {
    hid_t space = H5Screate_simple(1, &whole, NULL);
    OK(space);
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &count, NULL));
    return space;
}

static inline hid_t chunked(hsize_t chunk) {
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    OK(list);
    OK(H5Pset_chunk(list, 1, &chunk));
    return list;
}

#endif
