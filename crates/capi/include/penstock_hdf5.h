/* penstock_hdf5.h - the HDF5 file driver "penstock", with which H5Dread and H5Dwrite accept GPU memory,
 * and the HDF5 connector "penstock_async".
 *
 * A program need not call these functions: the environment variables HDF5_DRIVER=penstock and
 * HDF5_PLUGIN_PATH (set to the output of `penstock --plugin-dir`) select the driver in an unchanged
 * program. Identifiers are HDF5's hid_t. The functions use the HDF5 of the process; if there are several,
 * penstock_hdf5_bind selects one. If that HDF5 is not thread-safe, the program must serialize these calls
 * with its other HDF5 calls.
 *
 * Options are key=value pairs, separated by semicolons, as in HDF5_DRIVER_CONFIG:
 *     threads, block, route, direct, io, queue_depth, slots, durable
 *                       as for penstock_options_parse
 *     scratch, decode   the same; of use to the connector above the driver only, since HDF5 itself
 *                       decodes and encodes the chunks that it transfers through the driver
 *     mode=auto|sec2|direct|sec2+pinned|direct+pinned|posix-mt|gds
 *                       how GPU data is moved: auto is Penstock's engine; the other modes are for
 *                       comparison
 *     stripe_count=N;stripe_size=4MiB
 *                       stripes of a new file, if the file system has them (Lustre)
 */
#ifndef PENSTOCK_HDF5_H
#define PENSTOCK_HDF5_H

#include "penstock.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a file access property list use the driver. NULL and "" set no options. */
PENSTOCK_API int penstock_fapl_set(int64_t fapl_id, const char *options);

/* Returns PENSTOCK_OK if the driver accepts these options, otherwise PENSTOCK_ERR_INVALID with the key in
 * the message. Needs no HDF5. */
PENSTOCK_API int penstock_hdf5_check_options(const char *options);

/* Replaces the options of an open file for its later transfers. Returns PENSTOCK_ERR_INVALID if the file
 * was not opened by the driver, or if a key or value is invalid. */
PENSTOCK_API int penstock_hdf5_set_options(int64_t file_id, const char *options);

/* Writes the statistics of an open file so far as a JSON object: calls, bytes and nanoseconds by the path
 * that the bytes took. Free the string with penstock_string_free. */
PENSTOCK_API int penstock_hdf5_file_report(int64_t file_id, char **json);

/* Makes a file access property list use the connector "penstock_async", above the connector that the
 * list uses, which is HDF5's native one by default. If the list already uses "penstock_async", replaces
 * its options. A program need not call this: HDF5_VOL_CONNECTOR=
 * "penstock_async under_vol=0;under_info={};..." with HDF5_PLUGIN_PATH does the same.
 *
 * Options are NULL or key=value pairs, separated by semicolons:
 *     threads, block, route, direct, io, queue_depth, slots, durable, scratch, decode
 *                       as for penstock_options_parse; those that are not set are the driver's, if
 *                       penstock is the driver of the file
 *     copy=auto|always|never
 *                       whether a write that continues after its call copies its data, so that the
 *                       caller may reuse the memory; auto is the same as always
 *     max_mem_mb=N      the most MiB of host and GPU memory for the copies of all files of the process. The
 *                       default is HDF5_ASYNC_MAX_MEM_MB or, without it, a quarter of the memory that is
 *                       available (MemAvailable of /proc/meminfo) when the first write of the file is
 *                       copied, and 64 at least. A write that has no room beside the copies of pending ones
 *                       waits for them. One that exceeds the limit by itself, or whose copy cannot be
 *                       allocated, runs synchronously; with 0, each does
 *     log=FILE          the file to which the connector logs which calls ran synchronously, and why
 *     implicit=0|1      whether calls without an event set may continue after they have returned
 *     small=SIZE        smaller transfers are left to HDF5, and complete when the call returns; by default
 *                       64KiB with an event set and 512KiB without; 0 for none
 *     collective=auto|hdf5|engine
 *                       the implementation of collective transfers of files that the processes of an MPI
 *                       program share; docs/how-to/async.md lists the guarantees. All processes must set the same */
PENSTOCK_API int penstock_fapl_set_connector(int64_t fapl_id, const char *options);

/* Orders the connector's transfers of GPU memory with a dataset transfer property list after the work that
 * was queued on `stream`, a cudaStream_t, before their call. A write that continues after its call reads
 * the memory in stream order: work queued on the stream later may change it. The stream must exist as long
 * as the list is used. By default, transfers are ordered after the legacy default stream. */
PENSTOCK_API int penstock_dxpl_set_stream(int64_t dxpl_id, void *stream);

/* Returns PENSTOCK_OK if the connector accepts this text, which may be its options or all that follows its
 * name in HDF5_VOL_CONNECTOR, otherwise PENSTOCK_ERR_INVALID with the key in the message. Needs no HDF5:
 * only the connector below can check the text in the braces of under_info. */
PENSTOCK_API int penstock_hdf5_check_connector_options(const char *options);

#ifdef __cplusplus
}
#endif

#endif
