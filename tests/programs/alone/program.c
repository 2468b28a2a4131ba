/* Runs a program of HDF5 calls, and prints what each of them gives.
 *
 *     program run FILE     a call a line, as tests/programs/alone.py writes them
 *     program dump FOLDER...   all that the files of such a program hold
 *
 * It knows nothing of Penstock: the environment says which driver and connector HDF5 uses. */
#define _GNU_SOURCE
#include "contents.h"
#include "transfers.h"
#include <unistd.h>

enum { SLOTS = 16, RANK = 3 };

static hid_t files[2];
static dataset datasets[SLOTS];

/* -- transfers -------------------------------------------------------------------------------- */

/* Selects by thousandths of the extent, so that a selection fits to a dataset of any extent. */
static hid_t selected(hid_t id, hsize_t *count)
{
    hid_t space = H5Dget_space(id);
    hsize_t extent[RANK], start[RANK], step[RANK], number[RANK];
    int rank = H5Sget_simple_extent_dims(space, extent, NULL);
    long kind = next();
    long parts[RANK][3];
    for (int i = 0; i < RANK; i++)
        for (int j = 0; j < 3; j++)
            parts[i][j] = next();
    hsize_t all = 1;
    for (int i = 0; i < rank; i++) {
        start[i] = extent[i] * (hsize_t)parts[i][0] / 1000;
        hsize_t stop = extent[i] * (hsize_t)parts[i][1] / 1000;
        step[i] = (hsize_t)parts[i][2];
        number[i] = stop > start[i] ? (stop - start[i] + step[i] - 1) / step[i] : 0;
        all *= extent[i];
    }
    if (all == 0) {
        H5Sselect_none(space);
    } else if (kind == 1) {
        int is_empty = 0;
        for (int i = 0; i < rank; i++)
            is_empty |= number[i] == 0;
        if (is_empty)
            H5Sselect_none(space);
        else
            H5Sselect_hyperslab(space, H5S_SELECT_SET, start, step, number, NULL);
    } else if (kind == 2) {
        hsize_t points = all < 17 ? all : 17, at[17 * RANK];
        for (hsize_t i = 0; i < points; i++) { /* the last one first */
            hsize_t flat = (points - 1 - i) * all / points;
            for (int axis = rank - 1; axis >= 0; axis--) {
                at[i * (hsize_t)rank + (hsize_t)axis] = flat % extent[axis];
                flat /= extent[axis];
            }
        }
        H5Sselect_elements(space, H5S_SELECT_SET, points, at);
    }
    *count = (hsize_t)H5Sget_select_npoints(space);
    return space;
}

/* Reads the rest of a line: memory type, place, seed, selection. */
static transfer described(int is_read)
{
    transfer made = {.line = line, .is_read = is_read};
    dataset of = datasets[next() % SLOTS];
    made.id = of.id;
    made.type = memory_type(of.type, next());
    long on_device = next(), seed = next();
    if (of.id < 0)
        return made;
    hsize_t count = 0;
    made.space = selected(of.id, &count);
    give_memory(&made, of, count, on_device, seed);
    return made;
}

/* One or several transfers, plain or in an event set. */
static void move(int is_read)
{
    long set = next() - 1, count = next();
    transfer made[TOGETHER];
    int used = 0;
    for (long i = 0; i < count && i < TOGETHER; i++) {
        made[used] = described(is_read);
        if (made[used++].id < 0)
            return;
    }
    carry_out(made, used, set, H5P_DEFAULT);
}

/* -- datasets and files ----------------------------------------------------------------------- */

/* SLOT FILE TYPE LAYOUT RANK 3*EXTENT 3*CHUNK GROWS ALLOC FILL_TIME FILL FILTERS FILTER... */
static void create(void)
{
    long slot = next() % SLOTS, file = next();
    int type = (int)next();
    long layout = next();
    int rank = (int)next();
    hsize_t extent[RANK], chunk[RANK], most[RANK];
    for (int i = 0; i < RANK; i++)
        extent[i] = (hsize_t)next();
    for (int i = 0; i < RANK; i++)
        chunk[i] = (hsize_t)next();
    long grows = next();
    for (int i = 0; i < RANK; i++)
        most[i] = grows & (1 << i) ? H5S_UNLIMITED : extent[i];
    hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_layout(properties, layout == 1 ? H5D_CHUNKED : layout == 2 ? H5D_COMPACT : H5D_CONTIGUOUS);
    if (layout == 1)
        H5Pset_chunk(properties, rank, chunk);
    H5Pset_alloc_time(properties, (H5D_alloc_time_t)next());
    H5Pset_fill_time(properties, (H5D_fill_time_t)next());
    long fill = next();
    int value = 99;
    if (fill == 1 && type < NUMBERS)
        H5Pset_fill_value(properties, H5T_NATIVE_INT, &value);
    if (fill == 2)
        H5Pset_fill_value(properties, H5T_NATIVE_INT, NULL);
    for (long i = next(); i > 0; i--)
        add_filter(properties, next(), type < NUMBERS);
    char name[8];
    name_of(slot, name);
    hid_t space = H5Screate_simple(rank, extent, layout == 1 ? most : NULL);
    if (datasets[slot].id < 0) {
        datasets[slot].id = H5Dcreate2(
            files[file], name, in_file[type], space, H5P_DEFAULT, properties, H5P_DEFAULT);
        datasets[slot].type = type;
        report("creates", datasets[slot].id < 0 ? -1 : 0);
    }
    H5Sclose(space);
    H5Pclose(properties);
}

static void extend(void)
{
    long slot = next() % SLOTS;
    hsize_t extent[RANK];
    for (int i = 0; i < RANK; i++)
        extent[i] = (hsize_t)next();
    if (datasets[slot].id >= 0)
        report("extends", H5Dset_extent(datasets[slot].id, extent));
}

static void copy(void)
{
    char from[8], to[8];
    long source = next() % SLOTS, target = next() % SLOTS, file = next();
    name_of(source, from);
    name_of(target, to);
    if (datasets[source].id < 0 || datasets[target].id >= 0)
        return;
    // HDF5 by itself copies wrong elements while its cache has chunks of the source, also after a flush.
    int is_alone = !getenv("HDF5_VOL_CONNECTOR");
    hid_t home = H5Iget_file_id(datasets[source].id);
    if (is_alone)
        H5Dclose(datasets[source].id);
    int status = H5Ocopy(home, from, files[file], to, H5P_DEFAULT, H5P_DEFAULT);
    if (is_alone)
        datasets[source].id = H5Dopen2(home, from, H5P_DEFAULT);
    H5Fclose(home);
    report("copies", status);
    if (status >= 0) {
        datasets[target].id = H5Dopen2(files[file], to, H5P_DEFAULT);
        datasets[target].type = datasets[source].type;
    }
}

static void attribute(void)
{
    long slot = next() % SLOTS;
    int value = (int)next(), found = -1;
    if (datasets[slot].id < 0)
        return;
    hid_t space = H5Screate(H5S_SCALAR), id;
    if (H5Aexists(datasets[slot].id, "note") > 0)
        id = H5Aopen(datasets[slot].id, "note", H5P_DEFAULT);
    else
        id = H5Acreate2(datasets[slot].id, "note", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(id, H5T_NATIVE_INT, &value);
    H5Aread(id, H5T_NATIVE_INT, &found);
    report("notes", found);
    H5Aclose(id);
    H5Sclose(space);
}

static herr_t iterated(hid_t group, const char *name, const H5L_info2_t *about, void *_)
{
    (void)about, (void)_;
    hid_t id = H5Dopen2(group, name, H5P_DEFAULT);
    show(id, name);
    return H5Dclose(id);
}

static void close_dataset(long slot)
{
    if (datasets[slot].id >= 0)
        report("closes", H5Dclose(datasets[slot].id));
    datasets[slot].id = -1;
}

/* LATEST STRATEGY PAGE_BUFFER USERBLOCK */
static long settings[4];

static void open_files(int is_new)
{
    static const char *const names[] = {"main.h5", "other.h5"};
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), creation = H5Pcreate(H5P_FILE_CREATE);
    H5Pset_libver_bounds(access, settings[0] ? H5F_LIBVER_LATEST : H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST);
    H5Pset_file_space_strategy(creation, (H5F_fspace_strategy_t)settings[1], 0, 1);
    // HDF5's own page buffer loses elements (1.14.4, 2.2.0). The driver turns it off.
    const char *driver = getenv("HDF5_DRIVER");
    if (settings[2] && driver && !strcmp(driver, "penstock"))
        H5Pset_page_buffer_size(access, (size_t)settings[2], 0, 0);
    H5Pset_userblock(creation, (hsize_t)settings[3]);
    for (int i = 0; i < 2; i++)
        files[i] = is_new ? H5Fcreate(names[i], H5F_ACC_TRUNC, creation, access)
                          : H5Fopen(names[i], H5F_ACC_RDWR, access);
    report("opens", files[0] < 0 || files[1] < 0 ? -1 : 0);
    H5Pclose(access);
    H5Pclose(creation);
}

static void reopen(void)
{
    char name[8];
    int types[SLOTS], homes[SLOTS];
    wait_for_all();
    for (long i = 0; i < SLOTS; i++) {
        name_of(i, name);
        types[i] = datasets[i].type;
        homes[i] = datasets[i].id < 0 ? -1 : H5Lexists(files[1], name, H5P_DEFAULT) > 0;
        close_dataset(i);
    }
    report("closes", H5Fclose(files[0]) < 0 || H5Fclose(files[1]) < 0 ? -1 : 0);
    open_files(0);
    for (long i = 0; i < SLOTS; i++) {
        name_of(i, name);
        if (homes[i] >= 0)
            datasets[i].id = H5Dopen2(files[homes[i]], name, H5P_DEFAULT);
        datasets[i].type = types[i];
    }
}

static void delete(void)
{
    char name[8];
    long slot = next() % SLOTS;
    name_of(slot, name);
    if (datasets[slot].id < 0)
        return;
    int file = H5Lexists(files[1], name, H5P_DEFAULT) > 0;
    close_dataset(slot);
    report("deletes", H5Ldelete(files[file], name, H5P_DEFAULT));
}

static void step(char *text)
{
    char what[16];
    int length = 0;
    sscanf(text, "%15s%n", what, &length);
    words = text + length;
    if (!strcmp(what, "open")) {
        for (int i = 0; i < 4; i++)
            settings[i] = next();
        open_files(1);
    } else if (!strcmp(what, "create"))
        create();
    else if (!strcmp(what, "write"))
        move(0);
    else if (!strcmp(what, "read"))
        move(1);
    else if (!strcmp(what, "wait"))
        wait_for(next());
    else if (!strcmp(what, "extend"))
        extend();
    else if (!strcmp(what, "copy"))
        copy();
    else if (!strcmp(what, "attribute"))
        attribute();
    else if (!strcmp(what, "visit"))
        report("visits", visit(files[next()]));
    else if (!strcmp(what, "iterate"))
        report("iterates", H5Literate2(files[next()], H5_INDEX_NAME, H5_ITER_INC, NULL, iterated, NULL));
    else if (!strcmp(what, "flush"))
        report("flushes", H5Fflush(files[next()], H5F_SCOPE_GLOBAL));
    else if (!strcmp(what, "reopen"))
        reopen();
    else if (!strcmp(what, "delete"))
        delete();
}

static int run(const char *path)
{
    char text[1024];
    FILE *program = fopen(path, "r");
    for (int i = 0; i < SLOTS; i++)
        datasets[i].id = -1;
    for (int i = 0; i < SETS; i++)
        sets[i] = H5EScreate();
    while (fgets(text, sizeof text, program)) {
        line++;
        step(text);
        fflush(stdout);
    }
    line++;
    wait_for_all();
    for (long i = 0; i < SLOTS; i++)
        close_dataset(i);
    for (int i = 0; i < SETS; i++)
        report("closes a set", H5ESclose(sets[i]));
    report("closes", H5Fclose(files[0]) < 0 || H5Fclose(files[1]) < 0 ? -1 : 0);
    fclose(program);
    return 0;
}

int main(int count, char **words_given)
{
    if (count < 3)
        return 2;
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    start_device();
    make_types();
    return strcmp(words_given[1], "dump") ? run(words_given[2]) : dump(count - 2, words_given + 2);
}
