/* penstock_hdf5.h - the HDF5 driver "penstock" from C: HDF5 files whose raw data may be in GPU
 * memory, by plain H5Dread and H5Dwrite. And the HDF5 connector "penstock_async".
 *
 * A program need not call any of this: HDF5_DRIVER=penstock with HDF5_PLUGIN_PATH set to what
 * `penstock --plugin-dir` prints does it without a change. Identifiers are HDF5's hid_t. The HDF5
 * is the one of the process; where a process holds several, penstock_hdf5_bind names the one that
 * is meant. Calls into an HDF5 that was not built thread-safe, which these are, are the program's to
 * keep apart.
 *
 * Options are a text of key=value, separated by semicolons, as in HDF5_DRIVER_CONFIG:
 *     threads, block, route, direct, io, queue_depth, durable   as for penstock_options_parse
 *     mode=auto|sec2|direct|sec2+pinned|direct+pinned|posix-mt|gds
 *                       how GPU data is moved: by the engine, or in a way to compare it with
 *     stripe_count=N;stripe_size=4MiB
 *                       of a new file, where the file system has stripes (Lustre)
 */
#ifndef PENSTOCK_HDF5_H
#define PENSTOCK_HDF5_H

#include "penstock.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a file access property list use the driver. NULL and "" leave all options open. */
PENSTOCK_API int penstock_fapl_set(int64_t fapl_id, const char *options);

/* PENSTOCK_OK if the driver would take these options, else PENSTOCK_ERR_INVALID, naming the key. Needs
 * no HDF5. */
PENSTOCK_API int penstock_hdf5_check_options(const char *options);

/* Replaces the options of an open file from its next transfer on. PENSTOCK_ERR_INVALID if the file
 * is not open by the driver, or a key or value is wrong. */
PENSTOCK_API int penstock_hdf5_set_options(int64_t file_id, const char *options);

/* What was moved for an open file so far, as a JSON object: calls, bytes and nanoseconds by the way
 * that the bytes took. Free the string with penstock_string_free. */
PENSTOCK_API int penstock_hdf5_file_report(int64_t file_id, char **json);

/* Makes a file access property list use the connector "penstock_async", above the connector that the
 * list uses, which is HDF5's native one if the program has set none. A list that uses it already gets
 * the options instead of those it had. A program need not call this: HDF5_VOL_CONNECTOR=
 * "penstock_async under_vol=0;under_info={};..." with HDF5_PLUGIN_PATH does the same.
 *
 * Options, NULL or key=value separated by semicolons:
 *     threads, block, route, direct, io, queue_depth, durable   as for the driver
 *     copy=auto|always|never
 *                       whether an operation that goes on after its call copies what it writes, so
 *                       that the caller may use the memory for something else; auto is always
 *     max_mem_mb=N      MiB that copies may take at most; HDF5_ASYNC_MAX_MEM_MB says it, too, and
 *                       without either it is a quarter of the free memory. A write for which there is
 *                       no room waits for others, or runs synchronously
 *     log=FILE          where to tell which calls ran synchronously, and why
 *     implicit=0|1      whether calls without an event set may go on after they have returned */
PENSTOCK_API int penstock_fapl_set_connector(int64_t fapl_id, const char *options);

/* Makes the connector's transfers of GPU memory with a dataset transfer property list come after the
 * work that `stream`, a cudaStream_t, has been given when they are called. A write that goes on after
 * its call reads the memory as work of the stream: what the stream is given later may change it. The
 * stream lives as long as the list is used. Without this, transfers come after the legacy default
 * stream. */
PENSTOCK_API int penstock_dxpl_set_stream(int64_t dxpl_id, void *stream);

/* PENSTOCK_OK if the connector would take this text after its name in HDF5_VOL_CONNECTOR, of which its
 * options are one, else PENSTOCK_ERR_INVALID, naming the key. Needs no HDF5: what stands in the braces
 * of under_info is for the connector below to check. */
PENSTOCK_API int penstock_hdf5_check_connector_options(const char *options);

#ifdef __cplusplus
}
#endif

#endif
