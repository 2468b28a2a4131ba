/* Writes plot files between the steps of a computation, as AMReX does. Each step writes a file with a
 * group for each level of refinement: attributes, the boxes, and the data, by hyperslabs from buffers
 * that are overwritten right after the calls. The computation is emulated by sleeping. The folder exists
 * and has no plot files.
 *
 *     cc async_plotfile.c $(pkg-config --cflags --libs hdf5) -ldl -o async_plotfile
 *     penstock run -- ./async_plotfile FOLDER                    # waits for each write
 *     penstock run --async -- ./async_plotfile --async FOLDER    # writes while it computes
 *
 * Both use the same code: with the event set H5ES_NONE, HDF5's _async functions are the plain ones. The
 * program does not refer to Penstock; the environment selects the connector. With --gpu, the data is in
 * GPU memory, as in a program that computes there. --check reads everything back.
 */
#include <hdf5.h>

#include <dlfcn.h>
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BOXES = 8, MOST_LEVELS = 8 };

static struct {
    const char *folder;
    int levels, steps, mebibytes, use_events, use_gpu, check;
    double compute;
} options = {.levels = 1, .steps = 5, .mebibytes = 256, .compute = 1};

static void die(const char *what) {
    fprintf(stderr, "async_plotfile: %s failed\n", what);
    exit(1);
}

static hid_t made(hid_t id, const char *what) {
    if (id < 0) die(what);
    return id;
}

static void done(herr_t status, const char *what) {
    if (status < 0) die(what);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void wait_until(double end) {
    for (double left; (left = end - now()) > 0;) {
        struct timespec time = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
        nanosleep(&time, NULL);
    }
}

/* ---- Memory: on the GPU, by the CUDA driver, so that no toolkit is needed, or on the host ---- */

#define CUDA(name, ...) ((int (*)(__VA_ARGS__))cuda_function(name))

static uintptr_t cuda_function(const char *name) {
    static void *library;
    if (library == NULL) library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) die("opening libcuda.so.1");
    return (uintptr_t)dlsym(library, name);
}

static void begin_gpu(void) {
    int device = 0;
    void *context = NULL;
    if (CUDA("cuInit", unsigned)(0) != 0 || CUDA("cuDeviceGet", int *, int)(&device, 0) != 0 ||
        CUDA("cuDevicePrimaryCtxRetain", void **, int)(&context, device) != 0 ||
        CUDA("cuCtxSetCurrent", void *)(context) != 0)
        die("finding a GPU");
}

static double *new_field(size_t bytes) {
    unsigned long long address = 0;
    if (!options.use_gpu) return (double *)malloc(bytes);
    if (CUDA("cuMemAlloc_v2", unsigned long long *, size_t)(&address, bytes) != 0) return NULL;
    return (double *)(uintptr_t)address;
}

static void set_field(double *field, const double *from, size_t bytes) {
    if (!options.use_gpu)
        memcpy(field, from, bytes);
    else if (CUDA("cuMemcpyHtoD_v2", unsigned long long, const void *, size_t)(
                 (uintptr_t)field, from, bytes) != 0)
        die("copying to the GPU");
}

/* ---- The computation ---- */

/* All levels have the same number of cells, in boxes of the same size. */
static hsize_t cells_of_level(void) {
    return (hsize_t)options.mebibytes * 1048576 / sizeof(double) / (hsize_t)options.levels / BOXES *
           BOXES;
}

static double value(int level, hsize_t cell) { return level * 1e9 + (double)cell; }

/* Stores the number of the step in the first cell of each box, and sleeps. */
static void compute(double *fields[], int step) {
    const double end = now() + (step > 0 ? options.compute : 0), number = step;
    for (int level = 0; level < options.levels; level++)
        for (hsize_t box = 0; box < BOXES; box++)
            set_field(fields[level] + box * (cells_of_level() / BOXES), &number, sizeof number);
    wait_until(end);
}

/* ---- Plot files ---- */

static void name_file(char *name, size_t size, int step) {
    snprintf(name, size, "%s/plt%05d.h5", options.folder, step);
}

static void write_number(hid_t place, const char *name, hid_t type, const void *number, hid_t events) {
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t attribute = made(H5Acreate_async(place, name, type, space, H5P_DEFAULT, H5P_DEFAULT, events),
                           "H5Acreate");
    done(H5Awrite_async(attribute, type, number, events), "H5Awrite");
    done(H5Aclose_async(attribute, events), "H5Aclose");
    H5Sclose(space);
}

static void write_boxes(hid_t group, hid_t events) {
    hsize_t count = BOXES + 1;
    int64_t offsets[BOXES + 1];
    for (int box = 0; box <= BOXES; box++) offsets[box] = box * (int64_t)(cells_of_level() / BOXES);
    hid_t space = H5Screate_simple(1, &count, NULL);
    hid_t dataset = made(H5Dcreate_async(group, "data:offsets=0", H5T_NATIVE_INT64, space,
                                         H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT, events),
                         "H5Dcreate");
    done(H5Dwrite_async(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, offsets, events),
         "H5Dwrite");
    done(H5Dclose_async(dataset, events), "H5Dclose");
    H5Sclose(space);
}

static void write_level(hid_t file, int level, const double *field, hid_t events) {
    char name[32];
    snprintf(name, sizeof name, "level_%d", level);
    hid_t group =
        made(H5Gcreate_async(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT, events), "H5Gcreate");
    write_number(group, "Level", H5T_NATIVE_INT, &level, events);
    write_boxes(group, events);

    hsize_t cells = cells_of_level(), start = 0;
    hid_t memory = H5Screate_simple(1, &cells, NULL), space = H5Screate_simple(1, &cells, NULL);
    hid_t dataset = made(H5Dcreate_async(group, "data:datatype=0", H5T_NATIVE_DOUBLE, space,
                                         H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT, events),
                         "H5Dcreate");
    done(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &cells, NULL), "selecting");
    done(H5Dwrite_async(dataset, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, field, events),
         "H5Dwrite");
    done(H5Dclose_async(dataset, events), "H5Dclose");
    done(H5Gclose_async(group, events), "H5Gclose");
    H5Sclose(memory);
    H5Sclose(space);
}

static void write_plotfile(double *fields[], int step, hid_t events) {
    char name[4096];
    name_file(name, sizeof name, step);
    hid_t file = made(H5Fcreate_async(name, H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT, events),
                      "creation of a new file");
    const double time = step * options.compute;
    write_number(file, "time", H5T_NATIVE_DOUBLE, &time, events);
    write_number(file, "num_levels", H5T_NATIVE_INT, &options.levels, events);
    for (int level = 0; level < options.levels; level++)
        write_level(file, level, fields[level], events);
    done(H5Fclose_async(file, events), "H5Fclose");
}

static void wait_for(hid_t events) {
    size_t left = 0;
    hbool_t failed = 0;
    if (events == H5ES_NONE) return;
    done(H5ESwait(events, H5ES_WAIT_FOREVER, &left, &failed), "H5ESwait");
    if (failed) die("an operation in the background");
}

static void check_plotfile(int step, double *found) {
    char name[4096];
    name_file(name, sizeof name, step);
    hid_t file = made(H5Fopen(name, H5F_ACC_RDONLY, H5P_DEFAULT), "H5Fopen");
    for (int level = 0; level < options.levels; level++) {
        const hsize_t cells = cells_of_level();
        snprintf(name, sizeof name, "level_%d/data:datatype=0", level);
        hid_t dataset = made(H5Dopen2(file, name, H5P_DEFAULT), "H5Dopen");
        done(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, found), "H5Dread");
        for (hsize_t cell = 0; cell < cells; cell++)
            if (found[cell] != (cell % (cells / BOXES) == 0 ? step : value(level, cell)))
                die("comparing what was written with what was read");
        H5Dclose(dataset);
    }
    H5Fclose(file);
}

/* ---- The program ---- */

static void parse(int argc, char **argv) {
    const struct option known[] = {
        {"async", no_argument, &options.use_events, 1}, {"gpu", no_argument, &options.use_gpu, 1},
        {"check", no_argument, &options.check, 1},      {"levels", required_argument, NULL, 'l'},
        {"steps", required_argument, NULL, 's'},        {"mebibytes", required_argument, NULL, 'm'},
        {"compute", required_argument, NULL, 'c'},      {NULL, 0, NULL, 0}};
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        if (option == 'l') options.levels = atoi(optarg);
        if (option == 's') options.steps = atoi(optarg);
        if (option == 'm') options.mebibytes = atoi(optarg);
        if (option == 'c') options.compute = atof(optarg);
        if (option == '?') optind = argc + 1;
    }
    if (optind != argc - 1 || options.levels < 1 || options.levels > MOST_LEVELS) {
        fprintf(stderr, "usage: async_plotfile [--async] [--gpu] [--check] [--levels N] [--steps N]\n"
                        "           [--mebibytes N (of each step)] [--compute SECONDS] FOLDER\n");
        exit(2);
    }
    options.folder = argv[optind];
}

int main(int argc, char **argv) {
    parse(argc, argv);
    if (options.use_gpu) begin_gpu();
    const hsize_t cells = cells_of_level();
    double *fields[MOST_LEVELS], *host = (double *)malloc(cells * sizeof(double));
    for (int level = 0; level < options.levels; level++) {
        fields[level] = new_field(cells * sizeof(double));
        if (host == NULL || fields[level] == NULL) die("allocation of memory");
        for (hsize_t cell = 0; cell < cells; cell++) host[cell] = value(level, cell);
        set_field(fields[level], host, cells * sizeof(double));
    }
    hid_t events = options.use_events ? made(H5EScreate(), "H5EScreate") : H5ES_NONE;

    double in_calls = 0, waited = 0;
    const double start = now();
    for (int step = 0; step < options.steps; step++) {
        compute(fields, step);
        const double before = now();
        wait_for(events);
        waited += now() - before;
        write_plotfile(fields, step, events);
        in_calls += now() - before;
    }
    const double before = now();
    wait_for(events);
    const double end = now();
    waited += end - before;
    in_calls += end - before;
    if (events != H5ES_NONE) H5ESclose(events);

    /* As in h5bench, the computation of all steps but one does not count as I/O. */
    const double computed = options.compute * (options.steps - 1);
    const double bytes =
        (double)options.steps * options.levels * (double)cells * (double)sizeof(double);
    printf("%d steps of %.0f MiB in %s memory, %s: %.3f s, of which %.3f s computing; %.3f s in calls "
           "of HDF5, of which %.3f s waiting; %.2f GB/s observed\n",
           options.steps, bytes / options.steps / 1048576, options.use_gpu ? "GPU" : "host",
           options.use_events ? "with an event set" : "without an event set", end - start, computed,
           in_calls, waited, bytes / 1e9 / (end - start - computed));
    for (int step = 0; step < options.steps && options.check; step++) check_plotfile(step, host);
    return 0;
}
