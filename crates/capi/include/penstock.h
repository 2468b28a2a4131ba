/* penstock.h - move bytes between files and GPU or host memory.
 *
 * Conventions
 *   - Lengths and offsets are in bytes. Any thread may call any function.
 *   - A function that returns int returns a penstock_status, unless its comment says otherwise. For
 *     any status but PENSTOCK_OK, PENSTOCK_PENDING and PENSTOCK_TURN, penstock_last_error() describes
 *     the failure on the calling thread.
 *   - A struct that starts with struct_size may get more fields at its end. Set struct_size to the size of
 *     the struct and every other field to a value or 0, as the *_INIT macros do, so that a program keeps
 *     working with a newer or an older library. A function that reads the struct returns
 *     PENSTOCK_ERR_INVALID if a field that this library does not know, or a reserved field, is not 0; one that
 *     fills it sets these fields to 0. Functions take one such struct by its address: none is an element of
 *     an array, or part of another struct, which refers to it by a pointer.
 *   - The other structs never change, so an array of them has the same stride for ever. Their reserved
 *     fields follow the same rule.
 *   - A pointer may be to pageable, pinned, managed or device memory; Penstock queries the CUDA
 *     driver for its kind. Offset, length and pointer may have any alignment.
 *   - The library never prints, exits or throws. It must not be used in a child of fork() after its
 *     first use: calls there return PENSTOCK_ERR_FORKED. There, penstock_close,
 *     penstock_request_free and penstock_replacement_release do nothing, so the child's copies of descriptors
 *     stay open. Functions that only
 *     parse text, find a place for a new file or note where libraries are work as usual:
 *     penstock_options_parse, penstock_parse_size, penstock_place_find, penstock_place_take_rights,
 *     penstock_search_folder, penstock_nvcomp_path and penstock_hdf5_bind.
 */
#ifndef PENSTOCK_H
#define PENSTOCK_H

#include <stddef.h>
#include <stdint.h>

/* Incremented when a change to a struct or function breaks older callers; the number in the soname. */
#define PENSTOCK_API_VERSION 1

/* The release of this header. penstock_version() is that of the library. */
#define PENSTOCK_VERSION_MAJOR 0
#define PENSTOCK_VERSION_MINOR 1
#define PENSTOCK_VERSION_PATCH 0

#if defined(__GNUC__)
#define PENSTOCK_API __attribute__((visibility("default")))
#else
#define PENSTOCK_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum penstock_status {
    PENSTOCK_OK = 0,
    PENSTOCK_PENDING = 1,          /* the request is not finished yet; not an error */
    PENSTOCK_ERR_INVALID = 2,      /* an argument is invalid */
    PENSTOCK_ERR_NOT_FOUND = 3,    /* the file or its directory does not exist */
    PENSTOCK_ERR_PERMISSION = 4,   /* the system denied access */
    PENSTOCK_ERR_IO = 5,           /* a system call failed; see os_errno */
    PENSTOCK_ERR_END_OF_FILE = 6,  /* the file ends before the range does */
    PENSTOCK_ERR_NO_SPACE = 7,     /* the file system or a quota is full */
    PENSTOCK_ERR_MEMORY = 8,       /* host, pinned or device memory could not be allocated */
    PENSTOCK_ERR_GPU = 9,          /* a CUDA driver or cuFile call failed; see gpu_code */
    PENSTOCK_ERR_UNAVAILABLE = 10, /* a library, device or route is not available */
    PENSTOCK_ERR_CANCELLED = 11,   /* penstock_request_cancel took effect */
    PENSTOCK_ERR_FORKED = 12,      /* called in a forked child of the process that used the library */
    PENSTOCK_ERR_INTERNAL = 13,    /* a bug in Penstock: please report it */
    PENSTOCK_TURN = 14             /* the request needs penstock_request_turn; not an error */
} penstock_status;

/* The path of bytes between the file and GPU memory. Host memory always uses HOST. */
typedef enum penstock_route {
    PENSTOCK_ROUTE_DEFAULT = 0, /* not set: the next outer level of options decides */
    PENSTOCK_ROUTE_AUTO = 1,    /* chosen for each request */
    PENSTOCK_ROUTE_HOST = 2,    /* directly between the file and host memory */
    PENSTOCK_ROUTE_STAGED = 3,  /* through a ring of pinned slots */
    PENSTOCK_ROUTE_MAPPED = 4,  /* the GPU copies from pinned pages of the page cache; reads only */
    PENSTOCK_ROUTE_GDS = 5,     /* through cuFile */
    PENSTOCK_ROUTE_HDF5 = 6     /* in reports only: by HDF5 itself, through host memory */
} penstock_route;

/* A setting with three values; DEFAULT means "not set". */
typedef enum penstock_choice {
    PENSTOCK_CHOICE_DEFAULT = 0,
    PENSTOCK_CHOICE_AUTO = 1,
    PENSTOCK_CHOICE_NO = 2,
    PENSTOCK_CHOICE_YES = 3
} penstock_choice;

/* The processor that decodes the filters of chunks for GPU memory, and encodes those of GPU memory. */
typedef enum penstock_decode {
    PENSTOCK_DECODE_DEFAULT = 0,
    PENSTOCK_DECODE_AUTO = 1, /* CPU and GPU, according to their speeds */
    PENSTOCK_DECODE_CPU = 2,
    PENSTOCK_DECODE_GPU = 3   /* the GPU, if it supports the filters */
} penstock_decode;

/* The mechanism that issues the reads and writes of the host and staged routes. */
typedef enum penstock_io {
    PENSTOCK_IO_DEFAULT = 0,
    PENSTOCK_IO_AUTO = 1,
    PENSTOCK_IO_THREADS = 2, /* pread and pwrite on worker threads */
    PENSTOCK_IO_URING = 3,   /* io_uring with registered buffers */
    PENSTOCK_IO_MMAP = 4     /* as threads; a write that fills holes goes through mappings of the file */
} penstock_io;

/* Options of a file or of one call. Zero means "not set": the next outer level decides. The levels,
 * innermost first: call, file, penstock_set_default_options, environment (PENSTOCK_OPTIONS, read
 * once), tuned profile (of `penstock tune`; PENSTOCK_PROFILE=off disables it), default. */
typedef struct penstock_options {
    size_t struct_size;
    uint32_t threads;     /* workers of one request, at most 256 */
    uint32_t queue_depth; /* reads or writes in flight per worker with io_uring, at most 256 */
    uint64_t block;       /* bytes that a worker moves at a time: 4 KiB to 1 GiB */
    int32_t route;        /* penstock_route */
    int32_t io;           /* penstock_io */
    int32_t direct;       /* penstock_choice: O_DIRECT never (NO), always (YES), or for uncached pages */
    int32_t durable;      /* penstock_choice (NO or YES): a write ends once data and size are on stable storage */
    uint64_t scratch;     /* GPU memory for chunks in flight, at least 1 MiB; 1 GiB if not set */
    int32_t decode;       /* penstock_decode */
    uint32_t slots;       /* pinned slots of a worker of the staged route, at most 64; 2 if not set */
} penstock_options;
#define PENSTOCK_OPTIONS_INIT { sizeof(penstock_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* The report of a finished request. Byte counts are of the caller's bytes, by the path they took. */
typedef struct penstock_report {
    size_t struct_size;
    int32_t route;              /* penstock_route that carried the most bytes */
    int32_t device;             /* CUDA ordinal of the memory, -1 for host memory */
    uint64_t bytes;             /* moved for the caller */
    uint64_t host_buffered;     /* page cache <-> host memory */
    uint64_t host_direct;       /* storage <-> host memory (O_DIRECT) */
    uint64_t staged_buffered;   /* page cache <-> pinned slot <-> GPU */
    uint64_t staged_direct;     /* storage <-> pinned slot <-> GPU (O_DIRECT) */
    uint64_t mapped;            /* pinned page cache -> GPU */
    uint64_t gds_p2p;           /* cuFile, storage <-> GPU over PCIe peer-to-peer, by its statistics */
    uint64_t gds_nvfs;          /* cuFile through the nvidia-fs kernel module, by its statistics */
    uint64_t gds_posix;         /* cuFile's own fallback through host memory, by its statistics */
    uint64_t gds_unproven;      /* cuFile, but its statistics do not show the path */
    uint64_t elapsed_ns;        /* from the call that began it to completion, planning included */
    uint64_t io_calls;          /* reads, writes, mappings or cuFile calls issued */
    uint64_t copies;            /* DMA or memory copies issued */
    uint64_t block;             /* bytes that a worker moved at a time */
    uint32_t threads;           /* workers that took part */
    uint32_t queue_depth;       /* the most reads or writes in flight of one worker */
    char note[256];             /* why the request took another path than requested, or why the tuned
                                 * profile was not used; "" if neither applies */
    uint64_t hdf5;              /* bytes moved by HDF5 itself, through host memory */
    uint64_t chunks;            /* chunks of a dataset that were read or written */
    uint64_t stored;            /* bytes of these chunks in the file */
    uint64_t decoded_cpu;       /* bytes of chunks decoded or encoded by the CPU */
    uint64_t decoded_gpu;       /* bytes of chunks decoded or encoded by the GPU */
    char tuned[128];            /* options from the tuned profile, in the form of penstock_options_parse */
} penstock_report;
#define PENSTOCK_REPORT_INIT \
    { sizeof(penstock_report), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "", 0, 0, 0, 0, 0, "" }

/* The strings are valid until the next Penstock call on this thread. */
typedef struct penstock_error {
    size_t struct_size;
    int32_t status;      /* penstock_status */
    int32_t os_errno;    /* 0 if no system call failed */
    int32_t gpu_code;    /* CUresult or CUfileOpError, 0 if no such call failed */
    int32_t reserved;
    uint64_t offset;     /* file offset and length of the part that failed */
    uint64_t length;
    const char *path;    /* "" if no file is involved */
    const char *cause;
    const char *remedy;
    const char *message; /* all of it in one or two sentences */
} penstock_error;

/* One range of a vectored transfer. The ranges of a read may overlap in the file. Where they overlap in
 * memory, each byte is of one of them, and which one is unspecified. Ranges of a write that overlap in the
 * file are refused by PENSTOCK_ERR_INVALID. */
typedef struct penstock_range {
    uint64_t offset; /* in the file */
    uint64_t length;
    void *buffer;
} penstock_range;

/* Handles, which are not addresses and are never reused. Any thread may use one at any time, even
 * while another thread frees or closes it: a call that began before completes; a later one returns
 * PENSTOCK_ERR_INVALID. */
typedef struct penstock_file penstock_file;
typedef struct penstock_request penstock_request;
typedef struct penstock_replacement penstock_replacement;
typedef void *penstock_stream; /* a CUstream (cudaStream_t); NULL is the legacy default stream */

/* -- the library ------------------------------------------------------------------------- */

/* The PENSTOCK_API_VERSION of the library. */
PENSTOCK_API int penstock_api_version(void);
/* 1 in a child of fork() in which this library must not be used, else 0. May be called there. Another copy of
 * the library, loaded in the child from another file, can be used. */
PENSTOCK_API int penstock_is_forked(void);
/* Also looks for the libraries of CUDA, cuFile and nvCOMP in this folder, and where NVIDIA's wheels have them if it is
 * that of Python's packages. Call it before functions that need them. */
PENSTOCK_API int penstock_search_folder(const char *folder);
/* Returns the release of the library, such as "0.1.0": static text. */
PENSTOCK_API const char *penstock_version(void);

/* Fills *error with the last failure on this thread (status PENSTOCK_OK if there was none). */
PENSTOCK_API int penstock_last_error(penstock_error *error);

/* Parses text such as "threads=8;block=4MiB;route=auto;io=auto;direct=auto;queue_depth=16;slots=2;
 * durable=no;scratch=1GiB;decode=auto" into *options; keys may be omitted. For an unknown key or an
 * invalid value, returns PENSTOCK_ERR_INVALID and names it. */
PENSTOCK_API int penstock_options_parse(const char *text, penstock_options *options);

/* Parses a size as the options above have: "4194304", "64KiB", "1.5MiB" (powers of two) or "1GB" (of ten). */
PENSTOCK_API int penstock_parse_size(const char *text, uint64_t *bytes);

/* Sets the process-wide options between those of a file and the environment. NULL clears them. */
PENSTOCK_API int penstock_set_default_options(const penstock_options *options);

/* Describes the machine and the file system of `path` (NULL for none) as a JSON object. Free the
 * string with penstock_string_free. */
PENSTOCK_API int penstock_describe(const char *path, char **json);
PENSTOCK_API void penstock_string_free(char *string);

/* Waits for all requests of this process that are in flight when it is called, except writes into
 * chunks of HDF5 datasets (penstock_dataset_write_submit), which need the thread that waits for them.
 * Does not wait for requests that other threads submit during the call. */
PENSTOCK_API int penstock_drain(void);

/* Traces all I/O, copies and requests to `path` as Chrome trace JSON (which Perfetto reads) until
 * penstock_trace_stop. The environment variable PENSTOCK_TRACE starts a trace with the process.
 * If another process, such as the parent after a fork, already writes a trace to this file, the id of this
 * process is added to the name. */
PENSTOCK_API int penstock_trace_start(const char *path);
PENSTOCK_API int penstock_trace_stop(void);

/* -- files ------------------------------------------------------------------------------- */

#define PENSTOCK_READ 1     /* open for reading */
#define PENSTOCK_WRITE 2    /* open for writing; combine with READ for both */
#define PENSTOCK_CREATE 4   /* create the file if it does not exist (mode 0666 less the umask) */
#define PENSTOCK_TRUNCATE 8 /* truncate an existing file to length 0 */

PENSTOCK_API int penstock_open(const char *path, int flags, const penstock_options *options,
                               penstock_file **file);
/* Opens the file of a descriptor for PENSTOCK_READ, PENSTOCK_WRITE or both; the descriptor must be open for
 * that. The caller keeps the descriptor and may close it when the call returns. Its position, O_APPEND and
 * O_DIRECT are ignored. */
PENSTOCK_API int penstock_open_descriptor(int descriptor, int flags, const penstock_options *options,
                                          penstock_file **file);
/* Closes the file. Waits for its requests and for calls that use it on other threads, without spinning, but
 * not for requests of other files. When it returns, no descriptor of the file is open. NULL is allowed. */
PENSTOCK_API int penstock_close(penstock_file *file);
/* Closes the file in *place, as penstock_close does, and sets *place to NULL. It can serve as the destructor of the
 * pointer that penstock_open fills. */
PENSTOCK_API void penstock_file_release(penstock_file **place);
/* Writes the length of the file as it is now. */
PENSTOCK_API int penstock_file_size(penstock_file *file, uint64_t *bytes);
/* Writes the inode, the length in bytes and the time of the last change in nanoseconds. Equal values in another
 * process, also on another host, identify the same file. Does not look up the path again. */
PENSTOCK_API int penstock_file_identity(penstock_file *file, uint64_t *inode, uint64_t *bytes,
                                        int64_t *modified_ns);
/* Sets the length of the file; new bytes read as zero. */
PENSTOCK_API int penstock_truncate(penstock_file *file, uint64_t bytes);
/* Flushes data and size to stable storage and, with the first call for the file in this process, also its
 * name: it syncs the folder. */
PENSTOCK_API int penstock_sync(penstock_file *file);
/* Replaces the file's options for later requests. */
PENSTOCK_API int penstock_set_options(penstock_file *file, const penstock_options *options);

/* -- synchronous transfers ------------------------------------------------------------------ */

/* `options` and `report` may be NULL. A read beyond the end of the file returns
 * PENSTOCK_ERR_END_OF_FILE. After any error the contents of the buffer are undefined, but nothing
 * writes to it any more. After a read, GPU memory is complete for work submitted to any stream.
 * The caller must synchronize work that has to finish first, such as a kernel that produces the data
 * of a write; penstock_submit can order the transfer after a stream instead. */
PENSTOCK_API int penstock_read(penstock_file *file, void *buffer, uint64_t length, uint64_t offset,
                               const penstock_options *options, penstock_report *report);
PENSTOCK_API int penstock_write(penstock_file *file, const void *buffer, uint64_t length,
                                uint64_t offset, const penstock_options *options,
                                penstock_report *report);
PENSTOCK_API int penstock_readv(penstock_file *file, const penstock_range *ranges, size_t count,
                                const penstock_options *options, penstock_report *report);
PENSTOCK_API int penstock_writev(penstock_file *file, const penstock_range *ranges, size_t count,
                                 const penstock_options *options, penstock_report *report);
/* Opens a file, does what penstock_read does, and closes the file. For a small read, that takes about two
 * thirds of the time of the three calls. */
PENSTOCK_API int penstock_load(const char *path, void *buffer, uint64_t length, uint64_t offset,
                               const penstock_options *options, penstock_report *report);

/* A write that fails or is cancelled may have written any part of its ranges but changes nothing else:
 * it preserves bytes that other calls or processes write to the file at the same time. If its
 * ranges extend beyond the end of the file, the file may have the length that success would have given
 * it, with zeros where nothing was written; no system call can undo that safely. A direct write, which
 * bypasses the page cache, fails with PENSTOCK_ERR_NO_SPACE and changes nothing if the file system is
 * known to be too full beforehand. If only the allocation of space shows this (because of a quota or
 * another program), the length is unchanged too, but the file may keep space allocated beyond its end
 * until that is written, truncated or removed. */

/* Atomically replaces the file `path` by the contents of the buffer: a reader finds the old file or the
 * new one. With durable=yes the new file also survives a power failure. No other process can open the new
 * file before it has its name. After an error the old file is unchanged, or there is still none; with
 * durable=yes the message may instead say that the new file is in place but may not survive a power
 * failure. A killed process leaves no other file if the file system supports unnamed files (O_TMPFILE).
 * Otherwise, and at the moment of the replacement, a hidden file (.penstock-*) can remain, which the next
 * process that saves in the directory removes.
 *
 * Symbolic links are followed, under the kernel's rule for links in sticky directories
 * (fs.protected_symlinks). The call refuses a path that ends in "/", "/." or "..", a file that is not regular,
 * and a file that the caller may not write. The new file has the mode and the user.* attributes of the old one,
 * its ACL if that is a POSIX ACL or can be copied as an extended attribute (NFSv4), and its owner and group
 * where the process may set them. setuid and setgid bits are cleared. If the group or the ACL cannot be kept,
 * the group and others each get only the permissions that both had. An ACL that is not an extended attribute, such
 * as a native one of GPFS, is not kept. If there was no file, the rights are those of any
 * new file in the directory. Other hard links of the old file keep the old contents. */
PENSTOCK_API int penstock_save(const char *path, const void *buffer, uint64_t length,
                               const penstock_options *options, penstock_report *report);

/* As penstock_save, for a file whose contents the caller writes. `descriptor` receives a descriptor of a new
 * file, open for reading and writing, which belongs to the replacement: the caller must not close it, nor use
 * it after the release. penstock_replacement_publish puts the file in the place of `path`; no write may be
 * in progress then. With `durable` not 0 the new file also survives a power failure. A further call only brings
 * the file to the medium. A child of fork() gets PENSTOCK_ERR_FORKED.
 * penstock_replacement_release removes a file that was not published, and sets *place to NULL. It can serve as
 * the destructor of the pointer that penstock_replacement_begin fills. */
PENSTOCK_API int penstock_replacement_begin(const char *path, penstock_replacement **replacement, int *descriptor);
PENSTOCK_API int penstock_replacement_publish(penstock_replacement *replacement, int durable);
PENSTOCK_API void penstock_replacement_release(penstock_replacement **place);

/* For programs that write a new file themselves, under a temporary name, before it replaces another one with
 * renameat(2), as penstock_save does. penstock_place_find follows `path`, and refuses it, as penstock_save
 * does, and removes hidden files of dead processes. `folder` receives a descriptor of the directory (O_PATH),
 * which the caller closes, and `name` the name of the file in it, which penstock_string_free frees.
 *
 * penstock_place_take_rights gives the open file `made`, created with mode 0600, the rights that penstock_save
 * gives a file that replaces `name`. A directory, created with mode 0700, gets the search permission
 * of all users with read permission for the file `name`; only its owner may change it. */
PENSTOCK_API int penstock_place_find(const char *path, int *folder, char **name);
PENSTOCK_API int penstock_place_take_rights(int made, int folder, const char *name);

/* -- requests ------------------------------------------------------------------------------ */

typedef enum penstock_operation { PENSTOCK_OP_READ = 0, PENSTOCK_OP_WRITE = 1 } penstock_operation;

/* The transfer starts when all work queued on `stream` before the call has completed. */
#define PENSTOCK_AFTER_STREAM 1
/* Work queued on `stream` after the call starts when the transfer has finished or failed. */
#define PENSTOCK_STREAM_WAITS 2

/* The caller only waits for the request. As for a synchronous transfer, this allows a route that waits
 * for all work of the GPU (mapped), and the call that waits for a request of at most 64 MiB carries out a share of
 * it until its time is over. A call for the progress, the report, or the descriptor leaves that
 * share to other threads. */
#define PENSTOCK_CALLER_WAITS 4

/* Elements that were never written and have no fill value read as zeros: for reads of arrays into new memory.
 * Without this flag their memory stays as it is, as by H5Dread; but they read as zeros where HDF5 itself must read
 * into temporary memory: for a GPU, for a strided array, or after work of a stream. HDF5 has such elements in
 * chunks without storage if the fill time is "never" or the fill value undefined. Only the functions for datasets,
 * readers and described arrays take it, and their writes ignore it. */
#define PENSTOCK_ZERO_HOLES 16

/* Starts a transfer and returns immediately. The ranges are copied. The buffers and the file must
 * remain valid until the request is finished, the stream only until the call returns. `stream` is used
 * only with one of the first two flags. Where the ranges are in memory of several GPUs, a default stream
 * is that of the GPU with the first of them: wait for those of the others before. If no thread can be
 * started, the calling thread performs the transfer; one that is ordered after a stream is then performed
 * by the call that waits for the request, tests it, frees it, makes a stream wait for it, or closes the
 * file. */
PENSTOCK_API int penstock_submit(penstock_file *file, int operation, const penstock_range *ranges,
                                 size_t count, const penstock_options *options,
                                 penstock_stream stream, int flags, penstock_request **request);
/* The asynchronous form of penstock_save. */
PENSTOCK_API int penstock_save_submit(const char *path, const void *buffer, uint64_t length,
                                      const penstock_options *options, penstock_stream stream,
                                      int flags, penstock_request **request);

/* Waits up to timeout_ns (negative: without limit). Returns PENSTOCK_PENDING on timeout, PENSTOCK_TURN if
 * the request needs penstock_request_turn, and otherwise the outcome of the request, which later calls
 * return again. Returns PENSTOCK_PENDING at once, even without limit, if penstock_request_turn has failed because
 * this thread cannot take the step now. */
PENSTOCK_API int penstock_request_wait(penstock_request *request, int64_t timeout_ns);
/* As penstock_request_wait, for a caller that does not report failures: penstock_hdf5_settle still reports
 * the failure of a write to a dataset. It returns PENSTOCK_TURN even if penstock_request_turn has failed
 * because this thread cannot take the step now. */
PENSTOCK_API int penstock_request_watch(penstock_request *request, int64_t timeout_ns);
/* As penstock_request_wait with a timeout of 0. */
PENSTOCK_API int penstock_request_test(penstock_request *request);
/* Requests cancellation. The request finishes with PENSTOCK_ERR_CANCELLED, or normally if it was too late. In
 * either case, wait for it before reusing the buffers. */
PENSTOCK_API int penstock_request_cancel(penstock_request *request);
/* Writes the bytes moved so far. */
PENSTOCK_API int penstock_request_progress(penstock_request *request, uint64_t *bytes);
/* Writes a number of bytes, counted over the ranges of a read in the order of the file, that have arrived without a
 * gap: they may be used before the request is finished. It is 0 until the end for many requests, and grows meanwhile for
 * large staged reads of ranges of 8 MiB and more, on average, into the memory of one GPU. */
PENSTOCK_API int penstock_request_arrived(penstock_request *request, uint64_t *bytes);
/* Returns PENSTOCK_PENDING until the request is finished. A failed request reports what it had moved. */
PENSTOCK_API int penstock_request_report(penstock_request *request, penstock_report *report);
/* Writes a file descriptor for poll and event loops. It becomes readable when the request is finished or
 * needs penstock_request_turn. The request owns it and closes it when it is freed: do not close it. */
PENSTOCK_API int penstock_request_fd(penstock_request *request, int *fd);
/* Makes later work on `stream` wait until the request has finished or failed. */
PENSTOCK_API int penstock_request_hold_stream(penstock_request *request, penstock_stream stream);
/* Waits for the request if it is in flight, and frees it. If this thread cannot take its step now
 * (penstock_request_turn), the request ends later: when penstock_hdf5_settle or another transfer waits for it. Nothing
 * uses its buffers then. NULL and a request that was freed before are allowed. Threads that wait for the request still
 * get its outcome. */
PENSTOCK_API void penstock_request_free(penstock_request *request);
/* Frees the request in *place and sets *place to NULL. It can serve as the destructor of the pointer that a
 * submit function fills. */
PENSTOCK_API void penstock_request_release(penstock_request **place);

/* -- HDF5 datasets -------------------------------------------------------------------------- */

/* Penstock uses the HDF5 that the process has loaded (1.14 or 2.x). These functions call it, except for
 * penstock_hdf5_bind, penstock_nvcomp_path, penstock_hdf5_is_settled and penstock_hdf5_unsettled: if it
 * is not thread-safe, the caller must hold the lock that guards it. Bytes are moved without HDF5 and
 * without the lock. */

typedef int64_t penstock_hid; /* hid_t */

/* Selects the HDF5 with which `module`, a loaded shared object, is linked, for a process with several
 * copies. NULL selects the only one. Returns PENSTOCK_ERR_INVALID if another one is already in use. */
PENSTOCK_API int penstock_hdf5_bind(const char *module);
/* Adds the directory of `path`, an nvCOMP library, to those that are searched after the loader's own. It has
 * no effect after the first search for nvCOMP. */
PENSTOCK_API int penstock_nvcomp_path(const char *path);

/* H5Dget_create_plist. HDF5 itself (1.14.4 to 2.2.0) crashes if the dataset has a fill value of variable
 * length, such as a string, and another handle of the file, through which the dataset was open before, has been
 * closed. This function does not crash. After it, H5Dget_create_plist itself does not crash either until HDF5 is
 * called for the same dataset through another handle of the file. The caller closes `list`. */
PENSTOCK_API int penstock_dataset_creation_list(penstock_hid dataset, penstock_hid *list);

/* H5Dread and H5Dwrite with a buffer in host or GPU memory; synchronous. `memory_space` and
 * `file_space` may be H5S_ALL (0). With a GPU buffer the transfer starts after the work queued on
 * `stream`. Transfers that Penstock does not support go through HDF5 and host memory; the report says
 * so. */
PENSTOCK_API int penstock_dataset_read(penstock_hid dataset, penstock_hid memory_type,
                                       penstock_hid memory_space, penstock_hid file_space,
                                       penstock_hid transfer_plist, void *buffer,
                                       penstock_stream stream, const penstock_options *options,
                                       penstock_report *report);
PENSTOCK_API int penstock_dataset_write(penstock_hid dataset, penstock_hid memory_type,
                                        penstock_hid memory_space, penstock_hid file_space,
                                        penstock_hid transfer_plist, const void *buffer,
                                        penstock_stream stream, const penstock_options *options,
                                        penstock_report *report);

/* Rules by which a read decodes packed numbers, as the CF conventions for netCDF describe them: elements in memory,
 * which are native float or double, are `stored * scale + offset`, or NaN if the stored number is a fill value.
 * The stored number, an integer, float or double, is first rounded to the type in memory, as which it is compared with
 * the fill values. Product and sum are rounded each. Scale and offset are finite; the scale of stored floats is not 0. */
typedef struct penstock_decoding {
    size_t struct_size;
    int32_t sign;       /* stored integers are taken 0 as they are, 1 as unsigned, 2 as signed, with the same bits */
    int32_t arithmetic; /* 0 without scale and offset, 1 in the type in memory, 2 as double */
    double scale;
    double offset;      /* -0.0 adds nothing to any number */
    int32_t reserved;
    int32_t fill_count;
    double fills[4];
} penstock_decoding;
#define PENSTOCK_DECODING_INIT { sizeof(penstock_decoding), 0, 0, 1.0, -0.0, 0, 0, { 0, 0, 0, 0 } }

/* An array in host or GPU memory. */
typedef struct penstock_array {
    size_t struct_size;
    void *data;              /* the element with all indices 0 */
    penstock_hid type;       /* the HDF5 datatype of an element in memory */
    int32_t rank;
    int32_t reserved;
    const uint64_t *shape;   /* that of the selection; dimensions of length 1 may be omitted or added */
    const int64_t *strides;  /* in bytes; NULL for C order, which a selection that is not a box requires */
    const penstock_decoding *decoding; /* of a read of a dataset; NULL converts the elements by HDF5's rules */
} penstock_array;
#define PENSTOCK_ARRAY_INIT { sizeof(penstock_array), NULL, 0, 0, 0, NULL, NULL, NULL }

/* Starts a transfer between a dataset and an array and returns immediately. The array must remain valid
 * until the request is finished; the dataset and the file may be closed before. A transfer that only
 * HDF5 can perform finishes before the call returns. */
PENSTOCK_API int penstock_dataset_read_submit(penstock_hid dataset, penstock_hid file_space,
                                              const penstock_array *array,
                                              const penstock_options *options,
                                              penstock_stream stream, int flags,
                                              penstock_request **request);
/* A write may call HDF5 until it is finished: the dataset must stay open, and the caller must wait for the
 * request and call penstock_request_turn whenever the wait returns PENSTOCK_TURN. This also applies if a
 * stream waits for the write (PENSTOCK_STREAM_WAITS), which continues only after it. */
PENSTOCK_API int penstock_dataset_write_submit(penstock_hid dataset, penstock_hid file_space,
                                               const penstock_array *array,
                                               const penstock_options *options,
                                               penstock_stream stream, int flags,
                                               penstock_request **request);

/* Indices along one dimension of a dataset: `count` of them from `start` on, `step` apart (0 counts as 1), or,
 * if `indices` is not NULL, those `count` ones, in any order. They may repeat; of an element that is written
 * more than once, the last value stays. */
typedef struct penstock_axis {
    uint64_t start;
    uint64_t step;
    uint64_t count;
    const uint64_t *indices;
} penstock_axis;

/* Elements of a dataset of `rank` dimensions. Either every combination of the indices of `axes`, one for each
 * dimension; an array for them has their shape. Or, if `axes` is NULL, `point_count` single elements, each
 * given by `rank` indices in `points`, in any order; an array for them is in C order. With PENSTOCK_RUNS as
 * `form`, `point_count` runs of elements, each given by three numbers in `points`: the first element, counted
 * in C order through the dataset, its position in the array, which has one dimension, and the number of
 * elements. Runs may overlap in the dataset: of an element that is written more than once, the value at its
 * highest position stays. In the array, only the runs of a read may overlap: a position gets the element of
 * the last run that has it. */
#define PENSTOCK_POINTS 0
#define PENSTOCK_RUNS 1
typedef struct penstock_selection {
    size_t struct_size;
    int32_t rank;
    int32_t form;            /* PENSTOCK_POINTS or PENSTOCK_RUNS */
    const penstock_axis *axes;
    const uint64_t *points;
    uint64_t point_count;
} penstock_selection;
#define PENSTOCK_SELECTION_INIT { sizeof(penstock_selection), 0, 0, NULL, NULL, 0 }

/* The same as penstock_dataset_read_submit and penstock_dataset_write_submit, for elements that are selected
 * without a dataspace; NULL selects all. HDF5 makes a dataspace of them only where it must read or write
 * itself. The lists are copied. If `request` is NULL, the call returns when the transfer has finished,
 * and `report`, which may be NULL, describes it; else `report` must be NULL. */
PENSTOCK_API int penstock_dataset_read_selected(penstock_hid dataset, const penstock_selection *selection,
                                                const penstock_array *array,
                                                const penstock_options *options,
                                                penstock_stream stream, int flags,
                                                penstock_report *report, penstock_request **request);
PENSTOCK_API int penstock_dataset_write_selected(penstock_hid dataset, const penstock_selection *selection,
                                                 const penstock_array *array,
                                                 const penstock_options *options,
                                                 penstock_stream stream, int flags,
                                                 penstock_report *report, penstock_request **request);

/* Reads parts of one dataset, and writes small ones, as often as wanted: of a file that is open only for reading
 * without calling HDF5, from any thread, and without the lock that guards HDF5; of others by HDF5 itself, which
 * reads small parts in less time than a transfer takes to plan. `type` is the HDF5 datatype of an element in memory,
 * or 0 for that of the dataset, if its elements are numbers of the machine in either byte order. NULL is stored in
 * `reader` if there can be none: if only penstock_dataset_read_selected can read the dataset, or if something is
 * wrong with the arguments, which that function then reports.
 *
 * penstock_reader_read reads on the calling thread, with workers where that is faster. It returns PENSTOCK_PENDING,
 * and does nothing, if the read is for penstock_dataset_read_selected: if the dataset may change, if it has more
 * than 64 MiB, if a pending operation comes first, if the memory or the stream may make the thread wait for other
 * requests, if penstock_hdf5_forget was called, or with PENSTOCK_STREAM_WAITS. The type of the array is ignored, but
 * for reads by HDF5. After HDF5 has closed the file, it returns PENSTOCK_ERR_INVALID, even if the file is open
 * again; a file that is closed during the read is an error of the program.
 *
 * With PENSTOCK_ONLY_CACHED, a flag of penstock_reader_read alone, the read takes place only if it copies bytes of
 * the page cache into host memory, from a file that an earlier read has left open, or fills elements that were never
 * written: the call waits for no medium, and decodes nothing. Otherwise it returns PENSTOCK_PENDING, and an unknown part of the memory has changed.
 *
 * With PENSTOCK_MAY_CALL_HDF5, a flag of penstock_reader_read alone, HDF5 reads what cannot be read without it, if
 * it is small: into dense memory, elements of the type of the array, which is `type`; into that of a GPU only numbers.
 * The caller holds HDF5's lock and has the dataset and `type` open. PENSTOCK_PENDING means that it is not small, that the
 * memory is the host's and there is a `stream`; or, for that of a GPU, that the work of `stream` is not done, that a
 * stream waits for a request, or that HDF5 may leave elements as they are and PENSTOCK_ZERO_HOLES is not given. After a
 * failure of HDF5, an unknown part of the memory has changed.
 *
 * With PENSTOCK_FILE_IS_OPEN, a flag of penstock_reader_read alone, the caller vouches that HDF5 has not closed the
 * file, for which the call otherwise asks the system.
 *
 * penstock_reader_write has HDF5 write the elements of a small part of a dataset from dense host memory, of the type
 * of the array, which is `type`. The caller holds HDF5's lock and has the dataset and `type` open. PENSTOCK_PENDING
 * means that the write is for penstock_dataset_write_selected: it is not small, it has to be durable, or Penstock
 * has to choose the filters of chunks itself. After a failure of HDF5, an unknown part of the dataset has changed.
 *
 * penstock_reader_describe writes what the reader knows of the dataset.
 *
 * penstock_reader_shape stores the lengths of the `rank` dimensions that the dataset has now. The caller holds
 * HDF5's lock.
 *
 * penstock_reader_start starts a read and returns at once; with any flags, and any memory and stream. The request
 * has no steps, and any thread may free it, without the lock. It returns PENSTOCK_PENDING, and starts nothing, if
 * the dataset may change, if the read has more than 64 MiB, if a pending operation comes first, if a stream waits
 * for a request and this one has a stream or memory of a GPU, in the child of a fork, or if penstock_hdf5_forget was
 * called. Later operations wait for the request as for those of penstock_dataset_read_selected.
 *
 * penstock_reader_is_forgotten returns 1 if penstock_hdf5_forget was called since the reader was opened, or if the
 * file may have changed because no lock keeps writers out, so that the reader reads nothing any more
 * (PENSTOCK_PENDING) and another one should be opened; otherwise 0.
 *
 * penstock_reader_pieces returns in how many pieces of the file a number of bytes lies, if they are elements as they
 * are stored and without filters: as many as they would fill chunks, or one if the dataset is contiguous. It returns
 * 0 for others, and for a dataset that may change. */
typedef struct penstock_reader penstock_reader;
typedef struct penstock_reader_facts {
    size_t struct_size; /* sizeof(penstock_reader_facts), set by the caller */
    int32_t ways;       /* penstock_reader_read may read without HDF5 (1), with it (2), or in both ways (3) */
    int32_t rank;       /* the number of dimensions */
    int32_t number;     /* of an element in the file: 'i' signed integer, 'u' unsigned, 'f' IEEE 754; 0 for others */
    int32_t order;      /* its byte order: 0 little endian, 1 big endian */
    uint64_t size;      /* its bytes */
    uint64_t shape[32]; /* `rank` lengths if it may read without HDF5, as the dataset cannot change then; else 0 */
} penstock_reader_facts;
#define PENSTOCK_ONLY_CACHED 8
#define PENSTOCK_MAY_CALL_HDF5 32
#define PENSTOCK_FILE_IS_OPEN 64
PENSTOCK_API int penstock_reader_open(penstock_hid dataset, penstock_hid type, penstock_reader **reader);
/* The same for elements that are decoded, unless `decoding`, which is copied, is NULL. */
PENSTOCK_API int penstock_reader_open_decoded(penstock_hid dataset, penstock_hid type,
                                              const penstock_decoding *decoding, penstock_reader **reader);
PENSTOCK_API int penstock_reader_read(penstock_reader *reader, const penstock_selection *selection,
                                      const penstock_array *array, const penstock_options *options,
                                      penstock_stream stream, int flags, penstock_report *report);
PENSTOCK_API int penstock_reader_start(penstock_reader *reader, const penstock_selection *selection,
                                       const penstock_array *array, const penstock_options *options,
                                       penstock_stream stream, int flags, penstock_request **request);
PENSTOCK_API int penstock_reader_write(penstock_reader *reader, const penstock_selection *selection,
                                       const penstock_array *array, penstock_report *report);
PENSTOCK_API int penstock_reader_describe(penstock_reader *reader, penstock_reader_facts *facts);
PENSTOCK_API int penstock_reader_shape(penstock_reader *reader, int rank, uint64_t *lengths);
PENSTOCK_API int penstock_reader_is_forgotten(penstock_reader *reader);
PENSTOCK_API uint64_t penstock_reader_pieces(penstock_reader *reader, uint64_t bytes);
PENSTOCK_API void penstock_reader_close(penstock_reader *reader);
/* Closes the reader in *place and sets *place to NULL, as penstock_request_release does with a request. */
PENSTOCK_API void penstock_reader_release(penstock_reader **place);

/* Frees the cache of an object's file. Call it after H5Drefresh, and before the file is closed if the memory matters.
 *
 * While a file is open only for reading, the library caches descriptions and chunk tables of its datasets, and
 * decoded chunks: up to 64 MiB a file, or the size in PENSTOCK_CHUNK_CACHE (0 for none), or the size of HDF5's
 * own cache if that is larger (H5Pset_cache). Chunks that are read in part are cached at once, those that are read as
 * a whole when they are read again soon. All files together have at most 256 MiB, or the highest limit of a file if that
 * is more; the least recently used chunk of all files is dropped first. HDF5's lock excludes only writers that take it. In a settled file,
 * the library detects any other change within 20 ms; of a file that changed in the 10 s before, it caches nothing
 * for longer than that, unless HDF5 holds the lock. */
PENSTOCK_API int penstock_hdf5_forget(penstock_hid object);

/* For programs that also have HDF5 itself read virtual datasets. If the source of a mapping does not have the wanted
 * elements, because its shape is not the one that the mapping is for, HDF5 may return elements of other rows or of
 * freed memory, or crash. `selection` is of the virtual dataset; NULL selects all.
 *
 * penstock_virtual_check returns an error where HDF5 would not read the elements from the places that the mappings
 * say. penstock_virtual_is_read_alike stores 1 if it certainly does, else 0, and is faster for a dataset that is
 * read again. */
PENSTOCK_API int penstock_virtual_check(penstock_hid dataset, const penstock_selection *selection);
PENSTOCK_API int penstock_virtual_is_read_alike(penstock_hid dataset, const penstock_selection *selection, int *alike);

/* A part of a dataset to read, and the array to fill, for the functions below. */
typedef struct penstock_piece {
    const penstock_selection *selection; /* NULL selects all */
    const penstock_array *array;         /* NULL reads nothing */
} penstock_piece;

/* Reads `pieces[i]` of `datasets[i]`, all as one request: parts that are close together in a file are
 * read together, and there is one wait. A dataset may occur several times. The arrays must not overlap, and are
 * all in host memory, or all in the memory of one GPU. `report` and `request` are as for
 * penstock_dataset_read_selected. An error names the dataset. */
PENSTOCK_API int penstock_dataset_read_many(const penstock_hid *datasets, const penstock_piece *pieces,
                                            size_t count, const penstock_options *options,
                                            penstock_stream stream, int flags,
                                            penstock_report *report, penstock_request **request);

/* Descriptions of datasets, for a caller that does not know their shapes. */
typedef struct penstock_datasets penstock_datasets;
typedef struct penstock_dataset_shape {
    int32_t rank;            /* 0 for a scalar, -1 for a dataset without elements (H5S_NULL) */
    int32_t type;            /* a number that is the same for datasets of equal HDF5 datatypes */
    const uint64_t *lengths; /* of `rank` dimensions; those of the next dataset follow. Valid until
                              * penstock_datasets_close */
} penstock_dataset_shape;

/* The first step of penstock_dataset_read_many: describes `count` datasets and writes their shapes. If `names`
 * is not NULL, they have these paths from `location`, a file or group, are opened more cheaply than by
 * H5Dopen2, and stay open no longer than necessary; else they are `datasets`. Until
 * penstock_datasets_close, `location` or `datasets` must stay open, and nothing else may change the datasets. */
PENSTOCK_API int penstock_datasets_open(penstock_hid location, const char *const *names,
                                        const penstock_hid *datasets, size_t count,
                                        penstock_dataset_shape *shapes, penstock_datasets **opened);
/* Stores in `can_change` whether one of the datasets is in a file that this process has open for writing, as the
 * target of an external link may be: nothing may then write to it before the read is finished. */
PENSTOCK_API int penstock_datasets_can_change(penstock_datasets *opened, int *can_change);
/* The second step, with a piece for each dataset. It may be repeated. */
PENSTOCK_API int penstock_datasets_read(penstock_datasets *opened, const penstock_piece *pieces, size_t count,
                                        const penstock_options *options, penstock_stream stream, int flags,
                                        penstock_report *report, penstock_request **request);
/* Frees the descriptions. Requests continue. NULL is allowed. */
PENSTOCK_API int penstock_datasets_close(penstock_datasets *opened);

/* Transfers of one file take effect in the order of their submission, through all handles of the file and
 * all functions of this library, including the connector. A transfer that conflicts with others in flight
 * (both access an element that one of them writes, or they share a chunk or block of contiguous data that
 * is written as a whole) starts when those have finished; the call that submits it waits for them and
 * takes their turns. Files are identified by HDF5's number of the open file and, if the driver provides a
 * descriptor, by device and inode. Virtual datasets conflict with writes to their sources. Transfers of
 * plain bytes (penstock_submit and similar functions) are not ordered with these.
 *
 * Nor are calls of HDF5 itself, including those through the driver. Call this function before HDF5 reads
 * (PENSTOCK_OP_READ) or writes elements of a dataset, changes its extent or deletes it (PENSTOCK_OP_WRITE):
 * it waits for the transfers that must come first. Calls through the connector need no such call. Fails if
 * HDF5 could not complete the storage of the dataset for lack of space and would lose what is written. */
PENSTOCK_API int penstock_dataset_settle(penstock_hid dataset, int operation);
/* Makes HDF5 write what it caches of an open dataset's elements, and forget what H5Ocopy (1.14.4, 2.0.0, 2.2.0) would
 * copy wrongly: old elements, or memory past the end of a chunk. The connector does so itself for all datasets that
 * H5Ocopy copies; other programs call penstock_object_prepare_copy. */
PENSTOCK_API int penstock_dataset_prepare_copy(penstock_hid dataset);
/* Does what penstock_dataset_prepare_copy does for each open dataset that H5Ocopy would copy, also for those that HDF5
 * keeps open only as sources of open virtual datasets. The arguments are the first two of H5Ocopy, and its object copy
 * property list or 0. Call it before H5Ocopy, after penstock_hdf5_settle. If there is no such object, it does nothing, and
 * H5Ocopy fails. */
PENSTOCK_API int penstock_object_prepare_copy(penstock_hid location, const char *name, penstock_hid list);
/* Waits for all transfers of an object's file. Call it before the file is flushed or closed. Returns the
 * failure of a write that was not reported yet, because its request was freed or because neither
 * penstock_request_wait nor penstock_request_test returned its outcome. Of several such failures it returns
 * the first, and later calls return none of them. */
PENSTOCK_API int penstock_hdf5_settle(penstock_hid object);
/* Waits for all transfers of the file with this name. Call it before the file is recreated
 * (H5F_ACC_TRUNC) or deleted: a transfer may still read a source of a virtual dataset after HDF5 has closed
 * its file. */
PENSTOCK_API int penstock_hdf5_settle_path(const char *path);
/* If `options`, merged with those of the process, request durability: does what penstock_hdf5_settle does, flushes
 * the file and syncs it, so that what HDF5 itself has written is on the medium. Otherwise does nothing. Returns
 * PENSTOCK_ERR_INVALID if HDF5 cannot flush a file now: see penstock_request_turn. With 0 in place of the object, only
 * this is checked, so that a program can refuse a durable write before HDF5 writes anything. Returns
 * PENSTOCK_ERR_UNAVAILABLE for a virtual dataset, one in external files, and a driver that does not use one plain file. */
PENSTOCK_API int penstock_hdf5_sync(penstock_hid object, const penstock_options *options);
/* Mark the beginning and the end of a call of HDF5 that calls functions of the program on this thread, such as
 * H5Lvisit. Pairs may nest. HDF5 (1.14, 2.x) cannot flush a file in such a function, and could not later either if it
 * tried. Between the marks, no function of this library flushes or closes a file on this thread: a durable write is
 * refused. The connector marks such calls itself. */
PENSTOCK_API void penstock_hdf5_begin_call(void);
PENSTOCK_API void penstock_hdf5_end_call(void);
/* Returns 1 if penstock_dataset_settle, penstock_hdf5_settle and penstock_hdf5_settle_path would neither wait nor
 * report a failure, otherwise 0. */
PENSTOCK_API int penstock_hdf5_is_settled(void);
/* Returns the address of a number that is 0 only if penstock_hdf5_is_settled would return 1, for callers
 * for which a call costs more than a load. The address is valid until the process ends; the number may change at
 * any time. */
PENSTOCK_API const volatile uint64_t *penstock_hdf5_unsettled(void);
/* Performs on the calling thread the part of a request that needs HDF5, after penstock_request_wait or
 * penstock_request_test has returned PENSTOCK_TURN. penstock_request_free does so, too. A request that failed
 * or was cancelled also ends in a turn. Does nothing at other times.
 *
 * Returns PENSTOCK_ERR_INVALID, which is not the outcome of the request, if the part is the flush of a durable write
 * and this thread is inside a callback that HDF5 makes during another call, such as an iteration: HDF5 cannot flush
 * then. Return from the callback before you wait for the request again. Penstock detects such calls if its
 * connector is below the file or the program marks them by penstock_hdf5_begin_call. */
PENSTOCK_API int penstock_request_turn(penstock_request *request);

/* -- arrays whose storage is described ------------------------------------------------------ */

/* An array in a file of any format, described by plain data: where its elements lie, and how they are
 * stored. A process with the description reads and writes the elements without a library of the format. For
 * HDF5, one process of many describes a dataset (penstock_dataset_describe), and sends the description to the
 * others, which open the file by penstock_open. Numbers have the byte order of the machine that makes the
 * description; no version of the struct is a file format. */

/* Kinds of numbers. Add PENSTOCK_BIG_ENDIAN for numbers whose most significant byte comes first. */
typedef enum penstock_number {
    PENSTOCK_NUMBER_NONE = 0, /* bytes that are only copied */
    PENSTOCK_NUMBER_U8 = 1,
    PENSTOCK_NUMBER_I8 = 2,
    PENSTOCK_NUMBER_U16 = 3,
    PENSTOCK_NUMBER_I16 = 4,
    PENSTOCK_NUMBER_U32 = 5,
    PENSTOCK_NUMBER_I32 = 6,
    PENSTOCK_NUMBER_U64 = 7,
    PENSTOCK_NUMBER_I64 = 8,
    PENSTOCK_NUMBER_F8_E4M3 = 9,
    PENSTOCK_NUMBER_F8_E5M2 = 10,
    PENSTOCK_NUMBER_F16 = 11,
    PENSTOCK_NUMBER_BF16 = 12,
    PENSTOCK_NUMBER_F32 = 13,
    PENSTOCK_NUMBER_F64 = 14
} penstock_number;
#define PENSTOCK_BIG_ENDIAN 256

/* A filter of chunks, with the identifier and the values of HDF5's registry of filters. */
typedef struct penstock_filter {
    uint32_t id;
    uint32_t is_optional;    /* a chunk that the filter cannot encode is stored without it */
    uint32_t value_count;
    uint32_t reserved;
    const uint32_t *values;
} penstock_filter;

typedef struct penstock_stored_array {
    size_t struct_size;
    const char *name;        /* in errors; NULL for none */
    int32_t rank;            /* 0 for a scalar */
    int32_t number;          /* penstock_number of which an element has one or more */
    const uint64_t *shape;
    uint64_t element;        /* size in the file, in bytes */
    const void *fill;        /* the element that unwritten ones read as; NULL: they leave memory unchanged */
    uint64_t file_size;      /* a chunk that ends past it, or past INT64_MAX, is an error when it is used */
    uint64_t offset;         /* of the first element, or of chunk 0 if chunk_addresses is NULL; UINT64_MAX if
                              * nothing was ever written */
    const uint64_t *chunk;   /* shape of a chunk; NULL for a contiguous array */
    uint64_t chunk_count;    /* chunks that are stored; all of them if chunk_addresses is NULL */
    const uint64_t *chunk_numbers;   /* in C order of their places; NULL for 0, 1, 2, ... */
    const uint64_t *chunk_addresses; /* NULL: without filters, one after the other from `offset` on */
    const uint64_t *chunk_sizes;     /* stored bytes; NULL: those of a chunk without filters */
    const uint32_t *chunk_masks;     /* bit i: filter i was skipped; NULL for 0 */
    const penstock_filter *filters;  /* in the order of encoding */
    uint32_t filter_count;
    uint32_t unfiltered_edges;       /* chunks that reach past the array's edge have no filters */
} penstock_stored_array;

typedef struct penstock_stored penstock_stored;

/* Takes a description, which is copied. A table of chunks takes 28 bytes a chunk at most, 8 if all
 * chunks are stored in as many bytes each, and none if they follow each other. */
PENSTOCK_API int penstock_stored_open(const penstock_stored_array *array, penstock_stored **stored);
/* Describes a dataset. Returns PENSTOCK_ERR_UNAVAILABLE, with the reason, if only HDF5 can read it. `number` is
 * PENSTOCK_NUMBER_NONE: the caller knows the datatype. The description is true until the storage of the dataset
 * changes, by the library or by a write through another description. Addresses are those of HDF5: offsets in the
 * file, unless its driver has several. Elements that HDF5 or a pending request has not written yet are not in
 * the file: flush the dataset before, if this process may have written to it. */
PENSTOCK_API int penstock_dataset_describe(penstock_hid dataset, penstock_stored **stored);
/* Writes the description; set struct_size before. The pointers are valid until penstock_stored_close. */
PENSTOCK_API int penstock_stored_describe(penstock_stored *stored, penstock_stored_array *array);
/* Frees the description. Requests continue. NULL is allowed. */
PENSTOCK_API int penstock_stored_close(penstock_stored *stored);

/* Starts a read of what is selected (NULL: all) into an array, whose `type` is the penstock_number of its
 * numbers. Numbers are converted by the rules of HDF5's own conversions; where either side is
 * PENSTOCK_NUMBER_NONE, bytes are copied. `stream` and `flags` are as for penstock_submit. */
PENSTOCK_API int penstock_stored_read_submit(penstock_file *file, penstock_stored *stored,
                                             const penstock_selection *selection,
                                             const penstock_array *array,
                                             const penstock_options *options,
                                             penstock_stream stream, int flags,
                                             penstock_request **request);
/* Starts a write of elements that have storage without filters. It writes them and no other byte, so that
 * other calls and processes can write other elements of the same array, and of the same chunk, at the same
 * time. The file does not become durable: see penstock_sync. */
PENSTOCK_API int penstock_stored_write_submit(penstock_file *file, penstock_stored *stored,
                                              const penstock_selection *selection,
                                              const penstock_array *array,
                                              const penstock_options *options,
                                              penstock_stream stream, int flags,
                                              penstock_request **request);

/* Encoded chunks in memory, for a caller that allocates storage of their sizes by the format's library and
 * then writes them there. */
typedef struct penstock_encoded penstock_encoded;
/* Encodes the selected chunks, which must be whole up to the array's edge. The places of stored chunks do not
 * matter. `report` may be NULL. */
PENSTOCK_API int penstock_stored_encode(penstock_stored *stored, const penstock_selection *selection,
                                        const penstock_array *array, const penstock_options *options,
                                        penstock_stream stream, int flags, penstock_report *report,
                                        penstock_encoded **encoded);
/* Writes the number of chunks and, unless a pointer is NULL, the number, the size in bytes, the filter mask and
 * the address of each, in ascending order of numbers. Addresses are valid until penstock_encoded_close. */
PENSTOCK_API int penstock_encoded_list(penstock_encoded *encoded, uint64_t *count, uint64_t *numbers,
                                       uint64_t *sizes, uint32_t *masks, const void **bytes);
/* Starts to write each chunk at its address in the file. */
PENSTOCK_API int penstock_encoded_write_submit(penstock_encoded *encoded, penstock_file *file,
                                               const uint64_t *addresses, uint64_t count,
                                               const penstock_options *options,
                                               penstock_request **request);
/* Frees the chunks. Requests continue. NULL is allowed. */
PENSTOCK_API int penstock_encoded_close(penstock_encoded *encoded);

/* -- memory -------------------------------------------------------------------------------- */

typedef enum penstock_memory {
    PENSTOCK_MEMORY_HOST = 0,    /* pageable */
    PENSTOCK_MEMORY_PINNED = 1,  /* page-locked host memory known to CUDA */
    PENSTOCK_MEMORY_MANAGED = 2, /* migrates between host and device */
    PENSTOCK_MEMORY_DEVICE = 3
} penstock_memory;

/* Writes the penstock_memory of a pointer and its CUDA ordinal, -1 for pageable memory. Either output may be
 * NULL. */
PENSTOCK_API int penstock_memory_kind(const void *pointer, int *kind, int *device);
/* Writes the number of CUDA devices: 0, with PENSTOCK_OK, without a CUDA driver. */
PENSTOCK_API int penstock_device_count(int *count);
/* Allocates memory of a CUDA device, aligned to 256 bytes at least. penstock_device_free frees it. */
PENSTOCK_API int penstock_device_alloc(int device, uint64_t bytes, void **pointer);
PENSTOCK_API int penstock_device_free(void *pointer);
/* Frees the memory at *place and sets *place to NULL, as a destructor of that place; so does
 * penstock_host_release. */
PENSTOCK_API void penstock_device_release(void **place);
/* Allocates page-locked host memory that is usable in every CUDA context. */
PENSTOCK_API int penstock_host_alloc(uint64_t bytes, void **pointer);
PENSTOCK_API int penstock_host_free(void *pointer);
PENSTOCK_API void penstock_host_release(void **place);
/* Registers device memory with cuFile, so that transfers of the gds route bypass cuFile's own buffers. Only
 * cuFile benefits: every route accepts memory that is not registered. Returns PENSTOCK_ERR_UNAVAILABLE if
 * cuFile does not start. */
PENSTOCK_API int penstock_buffer_register(void *pointer, uint64_t bytes);
/* Undoes one penstock_buffer_register. Call it before the memory is freed and while no request uses it. */
PENSTOCK_API int penstock_buffer_deregister(void *pointer);
/* Prepares a device: makes Penstock's own CUDA context, which takes about 330 MiB of GPU memory, and loads the
 * kernels. The first transfer does so otherwise. */
PENSTOCK_API int penstock_init(int device);
/* Waits until the work queued on a stream has completed. `device` is the device of a default stream. */
PENSTOCK_API int penstock_stream_wait(int device, penstock_stream stream);
/* Sets *is_idle to 1 if all work queued on a stream has completed, otherwise to 0, also if a stream capture
 * prevents the query. Does not invalidate any capture. */
PENSTOCK_API int penstock_stream_query(int device, penstock_stream stream, int *is_idle);
/* Waits until the work queued on all streams of a device has completed. */
PENSTOCK_API int penstock_device_wait(int device);
/* Writes a stream of a device that has no work of its own. Another library that lends memory makes it wait for
 * the work queued there (DLPack's argument `stream`), and requests with PENSTOCK_AFTER_STREAM follow it. It must
 * not be destroyed. */
PENSTOCK_API int penstock_device_stream(int device, penstock_stream *stream);
/* Copies synchronously between any two kinds of memory. The ranges must not overlap. */
PENSTOCK_API int penstock_copy(void *destination, const void *source, uint64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
