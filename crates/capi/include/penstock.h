/* penstock.h - move bytes between files and GPU or host memory.
 *
 * Conventions
 *   - Lengths and offsets are bytes. Every function may be called from any thread.
 *   - A function returns a penstock_status. On anything but PENSTOCK_OK (and
 *     PENSTOCK_PENDING) penstock_last_error() describes the failure on the calling thread.
 *   - Structs that may grow start with struct_size: set it to sizeof the struct (the *_INIT
 *     macros do), so that a program built against an older header keeps working.
 *   - A pointer may be pageable, pinned, managed or device memory; Penstock asks the CUDA
 *     driver which, and never guesses. Offset, length and pointer may have any alignment.
 *   - The library never prints, exits or throws. It may not be used in a child made by fork()
 *     after its first use: calls there return PENSTOCK_ERR_FORKED. penstock_close and
 *     penstock_request_free do nothing there, so the child's copies of descriptors stay open;
 *     penstock_options_parse, penstock_hdf5_bind and penstock_nvcomp_path work as elsewhere.
 */
#ifndef PENSTOCK_H
#define PENSTOCK_H

#include <stddef.h>
#include <stdint.h>

/* Raised when a struct or function changes in a way that an older caller would notice. */
#define PENSTOCK_API_VERSION 1

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
    PENSTOCK_PENDING = 1,          /* the request is not finished yet: not an error */
    PENSTOCK_ERR_INVALID = 2,      /* an argument is wrong */
    PENSTOCK_ERR_NOT_FOUND = 3,    /* the file or its folder does not exist */
    PENSTOCK_ERR_PERMISSION = 4,   /* the system refused access */
    PENSTOCK_ERR_IO = 5,           /* a system call failed; see os_errno */
    PENSTOCK_ERR_END_OF_FILE = 6,  /* the file ends before the range does */
    PENSTOCK_ERR_NO_SPACE = 7,     /* the file system or a quota is full */
    PENSTOCK_ERR_MEMORY = 8,       /* host, pinned or device memory could not be had */
    PENSTOCK_ERR_GPU = 9,          /* a CUDA driver or cuFile call failed; see gpu_code */
    PENSTOCK_ERR_UNAVAILABLE = 10, /* a library, device or route is not there */
    PENSTOCK_ERR_CANCELLED = 11,   /* penstock_request_cancel took effect */
    PENSTOCK_ERR_FORKED = 12,      /* called in a child of the process that used the library */
    PENSTOCK_ERR_INTERNAL = 13,    /* a defect of Penstock: please report it */
    PENSTOCK_TURN = 14             /* the request goes on after penstock_request_turn: not an error */
} penstock_status;

/* How bytes travel between the file and GPU memory. Host memory is always served by HOST. */
typedef enum penstock_route {
    PENSTOCK_ROUTE_DEFAULT = 0, /* whatever the next outer level of options says */
    PENSTOCK_ROUTE_AUTO = 1,    /* chosen for each request */
    PENSTOCK_ROUTE_HOST = 2,    /* straight between the file and host memory */
    PENSTOCK_ROUTE_STAGED = 3,  /* through a ring of pinned slots */
    PENSTOCK_ROUTE_MAPPED = 4,  /* cached pages pinned in place, pulled by the GPU; reads only */
    PENSTOCK_ROUTE_GDS = 5,     /* cuFile */
    PENSTOCK_ROUTE_HDF5 = 6     /* in reports only: by HDF5 itself, through host memory */
} penstock_route;

/* A setting with three values and "not set". */
typedef enum penstock_choice {
    PENSTOCK_CHOICE_DEFAULT = 0,
    PENSTOCK_CHOICE_AUTO = 1,
    PENSTOCK_CHOICE_NO = 2,
    PENSTOCK_CHOICE_YES = 3
} penstock_choice;

/* Who undoes the filters of chunks that go to a GPU. */
typedef enum penstock_decode {
    PENSTOCK_DECODE_DEFAULT = 0,
    PENSTOCK_DECODE_AUTO = 1, /* CPU and GPU, as their speeds say */
    PENSTOCK_DECODE_CPU = 2,
    PENSTOCK_DECODE_GPU = 3   /* the GPU, where it knows the filters */
} penstock_decode;

/* Which mechanism issues the reads and writes of the host and staged routes. */
typedef enum penstock_io {
    PENSTOCK_IO_DEFAULT = 0,
    PENSTOCK_IO_AUTO = 1,
    PENSTOCK_IO_THREADS = 2, /* pread and pwrite on worker threads */
    PENSTOCK_IO_URING = 3    /* io_uring with registered buffers */
} penstock_io;

/* Options of a file or of one call. Zero means "not set": the next outer level decides.
 * Levels, inner first: call, file, penstock_set_default_options, environment (PENSTOCK_OPTIONS, read
 * once), tuned profile (`penstock tune`; PENSTOCK_PROFILE=off turns it off), default. */
typedef struct penstock_options {
    size_t struct_size;
    uint32_t threads;     /* workers that serve one request, at most 256 */
    uint32_t queue_depth; /* reads or writes in flight per worker with io_uring, at most 256 */
    uint64_t block;       /* bytes a worker moves at a time: 4 KiB to 1 GiB */
    int32_t route;        /* penstock_route */
    int32_t io;           /* penstock_io */
    int32_t direct;       /* penstock_choice: O_DIRECT never, always, or where the pages are not cached */
    int32_t durable;      /* penstock_choice (NO or YES): data and size are on the medium when a write is done */
    uint64_t scratch;     /* GPU memory for chunks under way, 1 MiB at least; 1 GiB if not set */
    int32_t decode;       /* penstock_decode */
    uint32_t slots;       /* pinned slots of a worker of the staged route, at most 64; 2 if not set */
} penstock_options;
#define PENSTOCK_OPTIONS_INIT { sizeof(penstock_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* What one finished request did. Byte counts are of the caller's bytes, by the path they took. */
typedef struct penstock_report {
    size_t struct_size;
    int32_t route;              /* penstock_route that carried the most bytes */
    int32_t device;             /* CUDA ordinal of the memory, -1 for host memory */
    uint64_t bytes;             /* moved for the caller */
    uint64_t host_buffered;     /* page cache <-> host memory */
    uint64_t host_direct;       /* medium <-> host memory (O_DIRECT) */
    uint64_t staged_buffered;   /* page cache <-> pinned slot <-> GPU */
    uint64_t staged_direct;     /* medium <-> pinned slot <-> GPU (O_DIRECT) */
    uint64_t mapped;            /* pinned page cache -> GPU */
    uint64_t gds_p2p;           /* cuFile, storage <-> GPU over PCIe peer-to-peer, by its statistics */
    uint64_t gds_nvfs;          /* cuFile through the nvidia-fs kernel module, by its statistics */
    uint64_t gds_posix;         /* cuFile's own fallback through host memory, by its statistics */
    uint64_t gds_unproven;      /* cuFile, but its statistics do not tell which way */
    uint64_t elapsed_ns;        /* from the call that began it, its planning included, to completion */
    uint64_t io_calls;          /* reads, writes, mappings or cuFile calls issued */
    uint64_t copies;            /* DMA or memory copies issued */
    uint64_t block;             /* bytes a worker moved at a time */
    uint32_t threads;           /* workers that took part */
    uint32_t queue_depth;       /* greatest number of reads or writes in flight of one worker */
    char note[256];             /* why the request took another way than asked for, or why the tuned
                                 * profile did not count; "" if neither is so */
    uint64_t hdf5;              /* bytes moved by HDF5 itself, through host memory */
    uint64_t chunks;            /* chunks of a dataset that were read or written */
    uint64_t stored;            /* their bytes in the file */
    uint64_t decoded_cpu;       /* bytes of chunks decoded or encoded by the CPU */
    uint64_t decoded_gpu;       /* and by the GPU */
    char tuned[128];            /* options from the tuned profile, as penstock_options_parse reads them */
} penstock_report;
#define PENSTOCK_REPORT_INIT \
    { sizeof(penstock_report), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "", 0, 0, 0, 0, 0, "" }

/* Strings live until the next Penstock call on this thread. */
typedef struct penstock_error {
    size_t struct_size;
    int32_t status;      /* penstock_status */
    int32_t os_errno;    /* 0 if no system call failed */
    int32_t gpu_code;    /* CUresult or CUfileOpError, 0 if neither failed */
    int32_t reserved;
    uint64_t offset;     /* file offset and length of the part that failed */
    uint64_t length;
    const char *path;    /* "" where no file is concerned */
    const char *cause;
    const char *remedy;
    const char *message; /* all of it in one sentence or two */
} penstock_error;

/* One piece of a vectored transfer. Ranges of one read may overlap in the file; the memory of a
 * read and the file ranges of a write must not overlap each other. */
typedef struct penstock_range {
    uint64_t offset; /* in the file */
    uint64_t length;
    void *buffer;
} penstock_range;

/* Handles, which point to nothing and are never given out twice. Any thread may use one at any time,
 * also while another frees or closes it: a call that began before that is carried out, a later one
 * is PENSTOCK_ERR_INVALID. */
typedef struct penstock_file penstock_file;
typedef struct penstock_request penstock_request;
typedef void *penstock_stream; /* a CUstream (cudaStream_t); NULL is the legacy default stream */

/* -- the library ------------------------------------------------------------------------- */

PENSTOCK_API int penstock_api_version(void);
PENSTOCK_API const char *penstock_version(void);

/* Fills *error with the last failure on this thread (status PENSTOCK_OK if there was none). */
PENSTOCK_API int penstock_last_error(penstock_error *error);

/* Reads "threads=8;block=4MiB;route=auto;io=auto;direct=auto;queue_depth=16;slots=2;durable=no;
 * scratch=1GiB;decode=auto" into *options; keys may be left out. An unknown key or bad value is PENSTOCK_ERR_INVALID, naming it. */
PENSTOCK_API int penstock_options_parse(const char *text, penstock_options *options);

/* Sets the process-wide level between a file's options and the environment. NULL clears it. */
PENSTOCK_API int penstock_set_default_options(const penstock_options *options);

/* What the machine offers, and what holds for `path` (NULL: no file system is described), as a
 * JSON object. Free the string with penstock_string_free. */
PENSTOCK_API int penstock_describe(const char *path, char **json);
PENSTOCK_API void penstock_string_free(char *string);

/* Waits for all requests that are under way in this process when it is called, other than writes into
 * chunks of HDF5 datasets (penstock_dataset_write_submit): these need the thread that waits for them.
 * What other threads submit meanwhile is not waited for. */
PENSTOCK_API int penstock_drain(void);

/* Writes spans of all I/O, copies and requests to `path` as Chrome trace JSON (Perfetto reads it)
 * until penstock_trace_stop. The environment variable PENSTOCK_TRACE does so from the start. */
PENSTOCK_API int penstock_trace_start(const char *path);
PENSTOCK_API int penstock_trace_stop(void);

/* -- files ------------------------------------------------------------------------------- */

#define PENSTOCK_READ 1     /* open for reading */
#define PENSTOCK_WRITE 2    /* open for writing; together with READ for both */
#define PENSTOCK_CREATE 4   /* make the file if it does not exist (mode 0666 less the umask) */
#define PENSTOCK_TRUNCATE 8 /* cut an existing file to length 0 */

PENSTOCK_API int penstock_open(const char *path, int flags, const penstock_options *options,
                               penstock_file **file);
/* The file that a descriptor of this process is open on, for PENSTOCK_READ, PENSTOCK_WRITE or both, as far
 * as the descriptor is open for that. The descriptor stays the caller's, who may close it at once. Its
 * position, O_APPEND and O_DIRECT do not count. */
PENSTOCK_API int penstock_open_descriptor(int descriptor, int flags, const penstock_options *options,
                                          penstock_file **file);
/* Waits for the file's requests and for calls on other threads, asleep, and for nothing else: requests of
 * other files, whether slow or stuck, do not hold it up. When it returns, no descriptor of the file is
 * open. NULL is allowed. */
PENSTOCK_API int penstock_close(penstock_file *file);
PENSTOCK_API int penstock_file_size(penstock_file *file, uint64_t *bytes);
/* Sets the length of the file; new bytes read as zero. */
PENSTOCK_API int penstock_truncate(penstock_file *file, uint64_t bytes);
/* Data and size are on the medium when it returns. */
PENSTOCK_API int penstock_sync(penstock_file *file);
/* Replaces the file's options from the next request on. */
PENSTOCK_API int penstock_set_options(penstock_file *file, const penstock_options *options);

/* -- transfers, done when the call returns -------------------------------------------------- */

/* `options` and `report` may be NULL. A read past the end of the file is
 * PENSTOCK_ERR_END_OF_FILE; on any error the contents of the buffer are undefined, but nothing
 * writes to it any more. GPU memory is complete for work that is submitted to any stream
 * afterwards; work that must finish before (a kernel that makes the data of a write) has to be
 * synchronised by the caller: penstock_submit orders with a stream instead. */
PENSTOCK_API int penstock_read(penstock_file *file, void *buffer, uint64_t length, uint64_t offset,
                               const penstock_options *options, penstock_report *report);
PENSTOCK_API int penstock_write(penstock_file *file, const void *buffer, uint64_t length,
                                uint64_t offset, const penstock_options *options,
                                penstock_report *report);
PENSTOCK_API int penstock_readv(penstock_file *file, const penstock_range *ranges, size_t count,
                                const penstock_options *options, penstock_report *report);
PENSTOCK_API int penstock_writev(penstock_file *file, const penstock_range *ranges, size_t count,
                                 const penstock_options *options, penstock_report *report);

/* A write that fails or is cancelled may have written any part of its ranges, and changes nothing
 * else: bytes that others write to the file meanwhile, in this process or another one, stay. Where it
 * ends beyond the end of the file, the file may be as long as if it had succeeded, and what it has
 * not written reads as zeros; no system call can take that back without harm to others. A write past
 * the page cache (direct) for which the file system is too full, as far as that is known before, fails
 * with PENSTOCK_ERR_NO_SPACE and changes nothing. If that shows only while room is taken (a quota,
 * another program), the length stays as well, but the file may keep room behind its end until it is
 * written there, truncated or removed. */

/* Replaces the file `path` by the buffer, atomically: a reader finds the old file or the new one.
 * With durable=yes the new one also survives a power failure. The new file has the mode of the old
 * one, or that of a new file, and before it has its name nobody else can open it. After an error the
 * old file is there, or none if there was none, and nothing else; with durable=yes the message can
 * say that the new file is in place but may not survive a power failure. A process that is killed
 * leaves no file where the file system can make files without names (O_TMPFILE); elsewhere, and in
 * the moment when a file is replaced, a hidden one (.penstock-*) can remain, which the next process
 * that saves in the folder removes. */
PENSTOCK_API int penstock_save(const char *path, const void *buffer, uint64_t length,
                               const penstock_options *options, penstock_report *report);

/* -- requests ------------------------------------------------------------------------------ */

typedef enum penstock_operation { PENSTOCK_OP_READ = 0, PENSTOCK_OP_WRITE = 1 } penstock_operation;

/* The transfer starts when all work queued on `stream` before the call is done. */
#define PENSTOCK_AFTER_STREAM 1
/* Work queued on `stream` after the call starts when the transfer is finished or has failed. */
#define PENSTOCK_STREAM_WAITS 2

/* The caller does nothing but wait for the request: a route that waits for all work of the GPU
 * (mapped) may be chosen for it, as for a transfer that is done when the call returns. */
#define PENSTOCK_CALLER_WAITS 4

/* Starts a transfer and returns at once. The ranges are copied; the buffers and the file must
 * stay until the request is finished, but the stream only until the call returns. `stream` counts
 * only with one of the first two flags. Where no thread can be started, the calling thread does all
 * of it; only what comes after a stream is then left to whoever waits for the request, or tests,
 * frees or holds a stream for it, or closes the file. */
PENSTOCK_API int penstock_submit(penstock_file *file, int operation, const penstock_range *ranges,
                                 size_t count, const penstock_options *options,
                                 penstock_stream stream, int flags, penstock_request **request);
/* The asynchronous form of penstock_save. */
PENSTOCK_API int penstock_save_submit(const char *path, const void *buffer, uint64_t length,
                                      const penstock_options *options, penstock_stream stream,
                                      int flags, penstock_request **request);

/* Waits up to timeout_ns (negative: for ever). PENSTOCK_PENDING when the time is over first,
 * else the outcome of the request; it can be asked for again. */
PENSTOCK_API int penstock_request_wait(penstock_request *request, int64_t timeout_ns);
/* As wait, for a caller that passes a failure on to nobody: that of a write to a dataset is then still told
 * by penstock_hdf5_settle. */
PENSTOCK_API int penstock_request_watch(penstock_request *request, int64_t timeout_ns);
/* As wait with a timeout of 0. */
PENSTOCK_API int penstock_request_test(penstock_request *request);
/* Asks a request to stop. It finishes with PENSTOCK_ERR_CANCELLED, or as if never asked when it
 * was too late; wait for it in any case before the buffers are reused. */
PENSTOCK_API int penstock_request_cancel(penstock_request *request);
/* Bytes moved so far. */
PENSTOCK_API int penstock_request_progress(penstock_request *request, uint64_t *bytes);
/* PENSTOCK_PENDING until the request is finished. A failed request reports what it had moved. */
PENSTOCK_API int penstock_request_report(penstock_request *request, penstock_report *report);
/* A file descriptor that becomes readable when the request is finished, or when wait and test say
 * PENSTOCK_TURN, for poll and event loops. It belongs to the request, and is closed with it: do not
 * close it. */
PENSTOCK_API int penstock_request_fd(penstock_request *request, int *fd);
/* Makes later work on `stream` start only when the request is finished or has failed. */
PENSTOCK_API int penstock_request_hold_stream(penstock_request *request, penstock_stream stream);
/* Frees the request; one that is still under way is waited for first. NULL, and a request that was
 * freed before, are allowed. Threads that wait for the request get its outcome. */
PENSTOCK_API void penstock_request_free(penstock_request *request);
/* Frees the request in a place that a submit function fills, and puts NULL there: a destructor of
 * the place, which exists before the request does. */
PENSTOCK_API void penstock_request_release(penstock_request **place);

/* -- HDF5 datasets -------------------------------------------------------------------------- */

/* Penstock uses the HDF5 that the process already has (1.14 or 2.x). Each of these calls enters it:
 * where it is not thread-safe, hold whatever lock guards it. Bytes are moved without HDF5, and
 * without the lock. */

typedef int64_t penstock_hid; /* hid_t */

/* Which HDF5 is meant where a process holds several: the one that `module`, a loaded shared object,
 * is linked with. NULL: the only one. PENSTOCK_ERR_INVALID once another one is in use. */
PENSTOCK_API int penstock_hdf5_bind(const char *module);
/* Where nvCOMP is, if not where the loader finds it. Counts until it is first looked for. */
PENSTOCK_API int penstock_nvcomp_path(const char *path);

/* H5Dread and H5Dwrite with a buffer in host or GPU memory; done on return. `memory_space` and
 * `file_space` may be H5S_ALL (0). With a GPU buffer the transfer starts after the work queued on
 * `stream`. What Penstock cannot do goes through HDF5 and host memory; the report says so. */
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

/* An array in host or GPU memory. */
typedef struct penstock_array {
    size_t struct_size;
    void *data;              /* the element with all indices 0 */
    penstock_hid type;       /* HDF5's type of an element in memory */
    int32_t rank;
    int32_t reserved;
    const uint64_t *shape;   /* that of the selection; dimensions of length 1 may be left out or added */
    const int64_t *strides;  /* in bytes; NULL: C order, which a selection that is no box needs */
} penstock_array;
#define PENSTOCK_ARRAY_INIT { sizeof(penstock_array), NULL, 0, 0, 0, NULL, NULL }

/* Start a transfer between a dataset and an array and return at once. The array must stay until the
 * request is finished; the dataset and the file may be closed before. What only HDF5 can do is done
 * before the call returns. */
PENSTOCK_API int penstock_dataset_read_submit(penstock_hid dataset, penstock_hid file_space,
                                              const penstock_array *array,
                                              const penstock_options *options,
                                              penstock_stream stream, int flags,
                                              penstock_request **request);
/* A write needs HDF5 now and then, and the dataset open until it is finished: somebody has to wait
 * for it and take its turns, also where a stream waits for it (PENSTOCK_STREAM_WAITS), which goes
 * on only then. */
PENSTOCK_API int penstock_dataset_write_submit(penstock_hid dataset, penstock_hid file_space,
                                               const penstock_array *array,
                                               const penstock_options *options,
                                               penstock_stream stream, int flags,
                                               penstock_request **request);
/* Transfers of one file have the effect of the order in which they were submitted, through whatever
 * handles of the file and whatever functions of this library, the connector's included: one that
 * conflicts with others under way (an element that both touch and one writes; a chunk, or a block of
 * contiguous data that is written whole) starts when those are finished, and the call that submits it
 * waits for them and takes their turns. Files are told apart by HDF5's number of the open file, and by
 * device and inode where the driver tells a descriptor; virtual datasets conflict with what is written to
 * their sources. Transfers of plain bytes (penstock_submit and its like) are not among these.
 *
 * Calls of HDF5 itself are not seen here, nor is the driver. Before HDF5 reads (PENSTOCK_OP_READ) or
 * writes elements of a dataset, changes its extent or deletes it (PENSTOCK_OP_WRITE), this waits for the
 * transfers that must come before. Those through the connector need no such call. An error where HDF5
 * has not finished the storage of the dataset for want of room, and would lose what is written. */
PENSTOCK_API int penstock_dataset_settle(penstock_hid dataset, int operation);
/* Waits for all transfers of the file that an object lies in, as is due before it is flushed or closed.
 * Returns the failure of a write of which nobody was told yet: whose request was freed, or not asked for
 * its outcome by wait or test. Each is told once by this, the first one of several. */
PENSTOCK_API int penstock_hdf5_settle(penstock_hid object);
/* Waits for all transfers of the file with this name, as is due before it is made anew (H5F_ACC_TRUNC) or
 * deleted: a source of a virtual dataset may be read while HDF5 has its file open no longer. */
PENSTOCK_API int penstock_hdf5_settle_path(const char *path);
/* 1 if nothing is under way for which these three would wait, nor an error left to be told; else 0. Needs no
 * lock. */
PENSTOCK_API int penstock_hdf5_is_settled(void);
/* The address of a number that is 0 only if penstock_hdf5_is_settled would return 1: for those to whom a call
 * costs more than a look. It is valid as long as the process lives, and changes at any time. */
PENSTOCK_API const volatile uint64_t *penstock_hdf5_unsettled(void);
/* Does what a request needs HDF5 for, on the calling thread, when wait or test has said
 * PENSTOCK_TURN (penstock_request_free does so, too). A request that failed or was cancelled ends in
 * a turn as well. Without effect at other times. */
PENSTOCK_API int penstock_request_turn(penstock_request *request);

/* -- memory -------------------------------------------------------------------------------- */

typedef enum penstock_memory {
    PENSTOCK_MEMORY_HOST = 0,    /* pageable */
    PENSTOCK_MEMORY_PINNED = 1,  /* page-locked host memory known to CUDA */
    PENSTOCK_MEMORY_MANAGED = 2, /* migrates between host and device */
    PENSTOCK_MEMORY_DEVICE = 3
} penstock_memory;

/* *device is the CUDA ordinal, -1 for pageable memory. */
PENSTOCK_API int penstock_memory_kind(const void *pointer, int *kind, int *device);
/* 0 devices (and PENSTOCK_OK) where there is no CUDA driver. */
PENSTOCK_API int penstock_device_count(int *count);
PENSTOCK_API int penstock_device_alloc(int device, uint64_t bytes, void **pointer);
PENSTOCK_API int penstock_device_free(void *pointer);
/* Page-locked host memory, for the devices of every context. */
PENSTOCK_API int penstock_host_alloc(uint64_t bytes, void **pointer);
PENSTOCK_API int penstock_host_free(void *pointer);
/* Registers device memory with cuFile, so that what the gds route moves there need not go through cuFile's
 * own buffers. Only cuFile gains by it: every route takes memory that is not registered.
 * PENSTOCK_ERR_UNAVAILABLE where cuFile does not start. */
PENSTOCK_API int penstock_buffer_register(void *pointer, uint64_t bytes);
/* Takes back one penstock_buffer_register, before the memory is freed and while no request uses it. */
PENSTOCK_API int penstock_buffer_deregister(void *pointer);
/* Waits until the work queued on a stream is done. `device` tells whose default stream is meant. */
PENSTOCK_API int penstock_stream_wait(int device, penstock_stream stream);
/* Whether all work queued on a stream is done: *is_idle is 1 or 0, and 0 where a capture into a CUDA
 * graph keeps the stream from being asked. No capture of any thread is disturbed. */
PENSTOCK_API int penstock_stream_query(int device, penstock_stream stream, int *is_idle);
/* Copies between any two kinds of memory; done when it returns. */
PENSTOCK_API int penstock_copy(void *destination, const void *source, uint64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
