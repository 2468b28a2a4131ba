/* Runs a program of HDF5 calls on the ranks of an MPI program, and has each of them print what its calls
 * give, in a file of its own.
 *
 *     mpiexec -n RANKS program run FILE     a call a line, as tests/programs/parallel writes them
 *     program dump FOLDER...                all that the files of such a program hold
 *
 * All ranks carry out the same lines. In an epoch, which ends with a barrier, each rank owns a part of
 * each dataset, which only this rank writes and reads, or all ranks only read. Any part of a program is
 * a program: all ranks skip an operation that is impossible at its place.
 *
 * Ranks need not do the same in one collective transfer: each has an event set of its own, or none. They may
 * exchange their parts between collective transfers, whose order all of them see. */
#define _GNU_SOURCE
#include "../alone/contents.h"
#include "selections.h"

#include <mpi.h>
#include <unistd.h>

enum { FILES = 2, SECONDS = 15 };

static hid_t files[FILES];
static shared_dataset datasets[SLOTS];
static hid_t second = -1; /* the second opening of a file */
static int is_open_for_reading;
static long settings[4]; /* LATEST METADATA_READ METADATA_WRITE IMPLICIT */

static void barrier(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

/* -- epochs ----------------------------------------------------------------------------------- */

static int rank_of(const shared_dataset *of)
{
    hid_t space = H5Dget_space(of->of.id);
    int dimensions = H5Sget_simple_extent_ndims(space);
    H5Sclose(space);
    return dimensions;
}

static void note_extent(shared_dataset *of)
{
    hid_t space = H5Dget_space(of->of.id);
    H5Sget_simple_extent_dims(space, of->base, NULL);
    H5Sclose(space);
}

/* Who owns which part of a dataset, by a number that all ranks have. */
static void divide(shared_dataset *of, uint64_t number)
{
    note_extent(of);
    uint64_t random = mixed(number);
    of->axis = (int)(random % (uint64_t)rank_of(of));
    of->place = (int)((random >> 8) % (uint64_t)ranks + (uint64_t)rank) % ranks;
    of->is_cyclic = (random >> 16) % 3 == 0;
    of->block = 1 + (random >> 24) % 5;
    of->is_read_only = is_open_for_reading || (random >> 32) % 4 == 0;
    of->had_independent = of->is_exchanged = 0;
}

/* Other ranks see what this one has written. In implicit mode only a flush waits for plain calls. */
static void settle(void)
{
    wait_for_all();
    for (int i = 0; i < FILES && settings[3] && !is_open_for_reading; i++)
        H5Fflush(files[i], H5F_SCOPE_GLOBAL);
    barrier();
}

static void begin_epoch(long number)
{
    settle();
    for (int i = 0; i < SLOTS; i++)
        if (datasets[i].of.id >= 0)
            divide(&datasets[i], (uint64_t)number * SLOTS + (uint64_t)i);
}

/* Each rank takes over the part of another. Transfers may be under way, if they are collective. They have no order among
 * the ranks if metadata is read collectively: docs/how-to/async.md. */
static void exchange(long number)
{
    if (settings[1])
        settle();
    else
        barrier();
    for (int i = 0; i < SLOTS; i++) {
        shared_dataset *of = &datasets[i];
        if (of->of.id < 0 || of->is_read_only || of->is_compact || of->had_independent)
            continue;
        of->place = (of->place + 1 + (int)(number % (ranks - 1))) % ranks;
        of->is_exchanged = 1;
    }
}

/* -- transfers -------------------------------------------------------------------------------- */

/* DTYPE DEVICE SEED KIND PARTS of one dataset on this rank; a compact dataset is the same on all. */
static transfer described(const shared_dataset *of, int is_read, long type, int is_mine)
{
    long own_type = next(), on_device = next(), seed = next(), kind = next();
    long parts[RANK][3];
    for (int i = 0; i < RANK; i++)
        for (int j = 0; j < 3; j++)
            parts[i][j] = next();
    transfer made = {.line = line, .is_read = is_read, .id = of->of.id};
    if (!is_mine)
        return made;
    made.type = memory_type(of->of.type, type < -1 ? own_type : type);
    shared_dataset all = *of;
    if (of->is_compact && !is_read) {
        all.is_read_only = 1;
        kind = 4, seed = line;
    }
    made.space = selected(&all, kind, parts);
    give_memory(&made, of->of, (hsize_t)H5Sget_select_npoints(made.space), on_device, seed);
    return made;
}

/* Gives the memory one element more than is selected, which HDF5 refuses before it transfers anything. */
static void spoil(transfer *made)
{
    hsize_t count = (hsize_t)H5Sget_select_npoints(made->flat) + 1;
    H5Sclose(made->flat);
    made->flat = H5Screate_simple(1, &count, NULL);
}

/* COLLECTIVE FAILS COUNT TYPE SLOT..., then for each rank: whether it takes part, SET, whether it is by the
 * second opening, and COUNT descriptions. FAILS has a bit for each rank. */
static void move(int is_read)
{
    long is_collective = next(), fails = next(), count = next(), type = next();
    shared_dataset *of[TOGETHER];
    int is_possible = is_read || !is_open_for_reading, has_second = 1, is_exchanged = 0, is_compact = 0;
    for (long i = 0; i < count; i++) {
        of[i] = &datasets[next() % SLOTS];
        is_possible &= of[i]->of.id >= 0 && of[i]->file == of[0]->file;
        is_possible &= is_read || !of[i]->is_read_only;
        is_collective |= !is_read && (of[i]->is_packed || of[i]->is_compact);
        is_exchanged |= of[i]->is_exchanged;
        is_compact |= of[i]->is_compact;
        has_second &= of[i]->again >= 0 && !of[i]->is_packed && !of[i]->is_compact;
        /* HDF5 alone has no collective conversion of what is filtered, and errors of only some ranks. */
        is_possible &= !of[i]->is_packed || count == 1;
        if (of[i]->is_packed)
            type = -1;
    }
    if (!is_possible)
        return;
    /* If metadata is read collectively, HDF5 alone waits in independent transfers for ranks without any. */
    is_collective |= settings[1] || is_exchanged;
    /* HDF5 alone never ends a collective transfer that fails on some ranks. */
    if (count > 1 || is_compact || (is_collective && fails))
        fails = is_collective && count == 1 && !is_compact && fails == (1 << ranks) - 1 ? fails : 0;
    transfer made[TOGETHER];
    int takes_part = 0;
    long set = -1, is_by_second = 0;
    for (int each = 0; each < ranks; each++) {
        long is_in = next(), own_set = next() - 1, by_second = next();
        for (long i = 0; i < count; i++) {
            /* HDF5 alone wants the same type of all ranks in a collective transfer. */
            transfer one = described(of[i], is_read, is_collective ? type : -2, each == rank);
            if (each == rank) {
                made[i] = one;
                takes_part = (int)is_in, set = own_set, is_by_second = by_second;
            }
        }
    }
    for (long i = 0; i < count; i++)
        of[i]->had_independent |= !is_collective;
    for (long i = 0; i < count && is_by_second && has_second && !is_collective; i++)
        made[i].id = of[i]->again;
    for (long i = 0; i < count && is_collective && !takes_part; i++)
        if (!of[i]->is_compact || is_read) {
            finished(&made[i], 0);
            made[i].space = H5Dget_space(made[i].id);
            H5Sselect_none(made[i].space);
            give_memory(&made[i], of[i]->of, 0, 0, 0);
            H5Sselect_none(made[i].flat);
        }
    if (is_collective || takes_part) {
        hid_t list = H5Pcreate(H5P_DATASET_XFER);
        H5Pset_dxpl_mpio(list, is_collective ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT);
        if (fails >> rank & 1)
            spoil(&made[0]);
        carry_out(made, (int)count, set, list);
        if (fails >> rank & 1 && set >= 0)
            wait_for(set); /* a set with an error takes nothing else */
        H5Pclose(list);
        return;
    }
    for (long i = 0; i < count; i++)
        finished(&made[i], 0);
}

/* -- datasets and files ----------------------------------------------------------------------- */

/* All ranks write what they own, of a dataset whose storage holds anything; a compact one is the same on all. */
static void write_whole(shared_dataset *of)
{
    of->is_cyclic = 0;
    of->is_read_only = of->is_compact;
    transfer made = {.line = line, .id = of->of.id, .type = in_memory[of->of.type]};
    long parts[RANK][3];
    made.space = selected(of, 4, parts);
    long seed = line * 8 + (of->is_compact ? 0 : rank);
    give_memory(&made, of->of, (hsize_t)H5Sget_select_npoints(made.space), 1, seed);
    of->is_read_only = 0;
    hid_t list = H5Pcreate(H5P_DATASET_XFER);
    H5Pset_dxpl_mpio(list, H5FD_MPIO_COLLECTIVE);
    carry_out(&made, 1, 0, list);
    H5Pclose(list);
}

/* WHOLE SLOT FILE TYPE LAYOUT RANK 3*EXTENT 3*CHUNK GROWS ALLOC FILL_TIME FILL FILTERS FILTER... */
static void create(void)
{
    shared_dataset *made;
    int is_whole = (int)next();
    long slot = next() % SLOTS, file = next();
    int type = (int)next();
    long layout = next();
    int dimensions = (int)next();
    hsize_t extent[RANK], chunk[RANK], most[RANK];
    for (int i = 0; i < RANK; i++)
        extent[i] = (hsize_t)next();
    for (int i = 0; i < RANK; i++)
        chunk[i] = (hsize_t)next();
    long grows = next();
    for (int i = 0; i < RANK; i++)
        most[i] = grows & (1 << i) ? H5S_UNLIMITED : extent[i];
    made = &datasets[slot];
    if (made->of.id >= 0 || is_open_for_reading)
        return;
    hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_layout(properties, layout == 1 ? H5D_CHUNKED : layout == 2 ? H5D_COMPACT : H5D_CONTIGUOUS);
    if (layout == 1)
        H5Pset_chunk(properties, dimensions, chunk);
    H5Pset_alloc_time(properties, (H5D_alloc_time_t)next());
    H5Pset_fill_time(properties, (H5D_fill_time_t)next());
    long fill = next();
    int value = 99;
    if (fill == 1 && type < NUMBERS)
        H5Pset_fill_value(properties, H5T_NATIVE_INT, &value);
    if (fill == 2)
        H5Pset_fill_value(properties, H5T_NATIVE_INT, NULL);
    long filters = next();
    made->is_packed = filters > 0;
    for (long i = filters; i > 0; i--) {
        long filter = next();
        if (!getenv("PROGRAM_UNFILTERED"))
            add_filter(properties, filter, type < NUMBERS);
    }
    char name[8];
    name_of(slot, name);
    hid_t space = H5Screate_simple(dimensions, extent, layout == 1 ? most : NULL);
    made->of.id =
        H5Dcreate2(files[file], name, in_file[type], space, H5P_DEFAULT, properties, H5P_DEFAULT);
    made->of.type = type;
    made->file = (int)file;
    made->is_compact = layout == 2;
    made->is_whole = is_whole;
    for (int i = 0; i < RANK; i++)
        made->chunk[i] = layout == 1 ? chunk[i] : 0;
    report("creates", made->of.id < 0 ? -1 : 0);
    if (made->of.id >= 0) {
        divide(made, (uint64_t)line);
        made->is_read_only = 0;
        /* A collective read of storage that HDF5 has not allocated never returns on the ranks that select
         * nothing, since the others take part in no I/O. */
        if (is_whole || made->is_packed)
            write_whole(made);
    }
    H5Sclose(space);
    H5Pclose(properties);
}

/* A dataset may grow while others of its elements are transferred. It loses whole chunks only: HDF5 keeps
 * what it has filled of a chunk in a cache of each rank, and writes over what others have written. */
static void extend(void)
{
    shared_dataset *of = &datasets[next() % SLOTS];
    hsize_t extent[RANK], wanted[RANK];
    for (int i = 0; i < RANK; i++)
        wanted[i] = (hsize_t)next();
    if (of->of.id < 0 || of->chunk[0] == 0 || of->is_whole || is_open_for_reading)
        return;
    hid_t space = H5Dget_space(of->of.id);
    int dimensions = H5Sget_simple_extent_dims(space, extent, NULL), shrinks = 0;
    H5Sclose(space);
    for (int i = 0; i < dimensions; i++)
        if (wanted[i] < extent[i]) {
            hsize_t whole = (wanted[i] + of->chunk[i] - 1) / of->chunk[i] * of->chunk[i];
            wanted[i] = whole < extent[i] ? whole : extent[i];
            shrinks |= wanted[i] < extent[i];
        }
    if (shrinks) {
        settle();
    }
    report("extends", H5Dset_extent(of->of.id, wanted));
    if (shrinks) {
        barrier();
        note_extent(of);
    }
}

static void attribute(void)
{
    hid_t of = datasets[next() % SLOTS].of.id;
    int value = (int)next(), found = -1;
    if (of < 0 || is_open_for_reading)
        return;
    hid_t space = H5Screate(H5S_SCALAR), id;
    if (H5Aexists(of, "note") > 0)
        id = H5Aopen(of, "note", H5P_DEFAULT);
    else
        id = H5Acreate2(of, "note", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(id, H5T_NATIVE_INT, &value);
    H5Aread(id, H5T_NATIVE_INT, &found);
    report("notes", found);
    H5Aclose(id);
    H5Sclose(space);
}

static const char *const names[FILES] = {"main.h5", "other.h5"};

static hid_t access_by(MPI_Comm communicator)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(access, settings[0] ? H5F_LIBVER_LATEST : H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST);
    H5Pset_fapl_mpio(access, communicator, MPI_INFO_NULL);
    H5Pset_all_coll_metadata_ops(access, settings[1] != 0);
    H5Pset_coll_metadata_write(access, settings[2] != 0);
    return access;
}

static void open_files(int is_new)
{
    hid_t access = access_by(MPI_COMM_WORLD);
    for (int i = 0; i < FILES; i++) {
        files[i] = is_new ? H5Fcreate(names[i], H5F_ACC_TRUNC, H5P_DEFAULT, access)
                          : H5Fopen(names[i], is_open_for_reading ? H5F_ACC_RDONLY : H5F_ACC_RDWR, access);
        report("opens", files[i] < 0 ? -1 : 0);
    }
    H5Pclose(access);
}

/* Closes the second opening, if there is one, before metadata change by the first. */
static void close_second(void)
{
    if (second < 0)
        return;
    settle();
    for (int i = 0; i < SLOTS; i++) {
        if (datasets[i].again >= 0)
            report("closes", H5Dclose(datasets[i].again));
        datasets[i].again = -1;
    }
    report("closes", H5Fclose(second));
    second = -1;
    barrier();
}

/* FILE GROUP: opens a file a second time, with the options of PROGRAM_SECOND. GROUP: 0 all ranks, 1 each rank
 * alone, 2 every second rank. */
static void open_second(long file, long group)
{
    settle();
    for (int i = 0; i < FILES && !is_open_for_reading; i++)
        H5Fflush(files[i], H5F_SCOPE_GLOBAL);
    barrier();
    MPI_Comm communicator;
    MPI_Comm_split(MPI_COMM_WORLD, group == 0 ? 0 : group == 1 ? rank : rank % 2, rank, &communicator);
    hid_t access = access_by(communicator);
    const char *options = getenv("PROGRAM_SECOND");
    if (options) {
        void *info = NULL;
        hid_t connector = H5VLregister_connector_by_name("penstock_async", H5P_DEFAULT);
        if (H5VLconnector_str_to_info(options, connector, &info) < 0 || H5Pset_vol(access, connector, info) < 0)
            report("has no connector", -1);
    }
    second = H5Fopen(names[file], is_open_for_reading ? H5F_ACC_RDONLY : H5F_ACC_RDWR, access);
    int is_open = second >= 0;
    MPI_Allreduce(MPI_IN_PLACE, &is_open, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    report("opens", is_open ? 0 : -1);
    if (!is_open && second >= 0) {
        H5Fclose(second);
        second = -1;
    }
    char name[8];
    for (long i = 0; i < SLOTS && is_open; i++)
        if (datasets[i].of.id >= 0 && datasets[i].file == file) {
            name_of(i, name);
            datasets[i].again = H5Dopen2(second, name, H5P_DEFAULT);
        }
    H5Pclose(access);
    MPI_Comm_free(&communicator);
    barrier();
}

static void close_dataset(shared_dataset *of, long set)
{
    if (of->of.id >= 0)
        report("closes", set < 0 ? H5Dclose(of->of.id) : H5Dclose_async(of->of.id, sets[set]));
    of->of.id = -1;
}

/* With transfers of the rank under way. */
static void close_files(long set)
{
    for (int i = 0; i < SLOTS; i++)
        close_dataset(&datasets[i], set);
    for (int i = 0; i < FILES; i++)
        report("closes", set < 0 ? H5Fclose(files[i]) : H5Fclose_async(files[i], sets[set]));
    wait_for_all();
    for (long i = 0; i < SETS; i++)
        if (set >= 0)
            wait_for(i);
    barrier();
}

/* FOR_READING SET NUMBER */
static void reopen(void)
{
    char name[8];
    int was_open[SLOTS];
    for (int i = 0; i < SLOTS; i++)
        was_open[i] = datasets[i].of.id >= 0;
    is_open_for_reading = (int)next();
    close_files(next() - 1);
    open_files(0);
    for (long i = 0; i < SLOTS; i++) {
        name_of(i, name);
        if (was_open[i])
            datasets[i].of.id = H5Dopen2(files[datasets[i].file], name, H5P_DEFAULT);
    }
    begin_epoch(next());
    /* HDF5 opens the index of chunks in the first transfer, by all ranks if metadata is collective. */
    for (long i = 0; i < SLOTS; i++)
        if (was_open[i] && settings[1])
            show(datasets[i].of.id, "again");
    barrier();
}

static void visit_files(void)
{
    settle();
    for (int i = 0; i < FILES; i++)
        report("visits", visit(files[i]));
    barrier();
}

static void delete(void)
{
    char name[8];
    long slot = next() % SLOTS;
    name_of(slot, name);
    if (datasets[slot].of.id < 0 || is_open_for_reading)
        return;
    settle();
    close_dataset(&datasets[slot], -1);
    report("deletes", H5Ldelete(files[datasets[slot].file], name, H5P_DEFAULT));
    barrier();
}

static void flush(void)
{
    hid_t file = files[next()];
    if (!is_open_for_reading)
        report("flushes", H5Fflush(file, H5F_SCOPE_GLOBAL));
}

/* SET RANKS: some of them wait. */
static void wait_some(void)
{
    long set = next(), which = next();
    if (which & (1 << rank))
        wait_for(set);
}

/* Each rank waits for all sets, in an order of its own. */
static void wait_in_turn(long number)
{
    for (long i = 0; i < SETS; i++)
        wait_for((number + rank + (rank % 2 ? i : SETS - i)) % SETS);
}

static void step(char *text)
{
    char what[16];
    int length = 0;
    sscanf(text, "%15s%n", what, &length);
    words = text + length;
    static const char *const with_second[] = {"write", "read", "wait", "turns", "exchange"};
    int may_stay = 0;
    for (size_t i = 0; i < sizeof with_second / sizeof *with_second; i++)
        may_stay |= !strcmp(what, with_second[i]);
    if (!may_stay)
        close_second();
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
        wait_some();
    else if (!strcmp(what, "epoch"))
        begin_epoch(next());
    else if (!strcmp(what, "turns"))
        wait_in_turn(next());
    else if (!strcmp(what, "exchange"))
        exchange(next());
    else if (!strcmp(what, "again")) {
        long file = next();
        open_second(file, next());
    } else if (!strcmp(what, "extend"))
        extend();
    else if (!strcmp(what, "attribute"))
        attribute();
    else if (!strcmp(what, "visit"))
        visit_files();
    else if (!strcmp(what, "flush"))
        flush();
    else if (!strcmp(what, "reopen"))
        reopen();
    else if (!strcmp(what, "delete"))
        delete();
}

static int run(const char *path)
{
    static char text[8192];
    char output[32];
    snprintf(output, sizeof output, "rank%d.out", rank);
    FILE *program = fopen(path, "r");
    if (!program || !freopen(output, "w", stdout))
        return 2;
    for (int i = 0; i < SLOTS; i++)
        datasets[i].of.id = datasets[i].again = -1;
    for (int i = 0; i < SETS; i++)
        sets[i] = H5EScreate();
    while (fgets(text, sizeof text, program)) {
        line++;
        step(text);
        fflush(stdout);
    }
    line++;
    close_second();
    close_files(-1);
    for (int i = 0; i < SETS; i++)
        report("closes a set", H5ESclose(sets[i]));
    fclose(program);
    fflush(stdout);
    return 0;
}

int main(int count, char **words_given)
{
    if (count < 3)
        return 2;
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    if (!strcmp(words_given[1], "dump")) {
        make_types();
        return dump(count - 2, words_given + 2);
    }
    int support;
    alarm(SECONDS);
    MPI_Init_thread(&count, &words_given, MPI_THREAD_SINGLE, &support);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    start_device();
    make_types();
    int status = run(words_given[2]);
    H5close();
    MPI_Finalize();
    return status;
}
