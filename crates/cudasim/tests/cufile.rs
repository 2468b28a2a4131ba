//! cuFile in each of its modes.

#[macro_use]
mod common;
use common::*;

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::ptr::null_mut;
use std::sync::MutexGuard;

use cudasim::cufile::api::*;
use penstock_sys::cufile::stats::CUfileStatsLevel3;
use penstock_sys::cufile::*;

const SIZE: usize = 1 << 20;

/// Fails the test unless a cuFile call returns `$code`.
macro_rules! answers {
    ($code:expr, $call:expr) => {{
        // SAFETY: the arguments are as the documentation of the function requires.
        #[allow(unused_unsafe)]
        let answer = unsafe { $call };
        assert_eq!(answer.err, $code, "{}: {answer}", stringify!($call));
    }};
}

/// Exclusive use of cuFile in one mode.
struct Session(#[allow(dead_code)] MutexGuard<'static, ()>);

impl Session {
    fn open(mode: &str) -> Session {
        let session = Session::prepare(mode);
        answers!(CU_FILE_SUCCESS, cuFileDriverOpen());
        answers!(CU_FILE_SUCCESS, cuFileSetStatsLevel(3));
        answers!(CU_FILE_SUCCESS, cuFileStatsStart());
        session
    }

    fn prepare(mode: &str) -> Session {
        let guard = alone();
        context();
        // SAFETY: all threads of this process read the environment through the standard library.
        unsafe { std::env::set_var("CUDASIM_CUFILE", mode) };
        Session(guard)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        fail(None);
        while cuFileDriverClose_v2().is_success() {}
    }
}

/// An unlinked file of `SIZE` patterned bytes, opened for reading and writing with `flags`.
fn file(flags: i32) -> (File, Vec<u8>) {
    let bytes = pattern(SIZE, 3);
    let path = std::env::temp_dir().join(format!(
        "cudasim-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::write(&path, &bytes).unwrap();
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(&path);
    std::fs::remove_file(&path).unwrap();
    (opened.unwrap(), bytes)
}

fn register(file: &File) -> CUfileHandle {
    let mut handle = null_mut();
    let mut description = CUfileDescr::for_fd(file.as_raw_fd());
    answers!(
        CU_FILE_SUCCESS,
        cuFileHandleRegister(&mut handle, &mut description)
    );
    handle
}

fn read(handle: CUfileHandle, base: u64, size: usize, at: i64, offset: i64) -> isize {
    // SAFETY: the tests pass valid memory or arguments that cuFile must refuse.
    unsafe { cuFileRead(handle, base as *mut c_void, size, at, offset) }
}

fn write(handle: CUfileHandle, base: u64, size: usize, at: i64, offset: i64) -> isize {
    // SAFETY: as for `read`.
    unsafe { cuFileWrite(handle, base as *const c_void, size, at, offset) }
}

fn statistics() -> CUfileStatsLevel3 {
    let mut found = CUfileStatsLevel3::default();
    answers!(CU_FILE_SUCCESS, cuFileGetStatsL3(&mut found));
    assert_eq!(found.num_gpus, 1);
    found
}

/// Reads once and writes once. Returns the counts of each path for both.
fn paths(flags: i32) -> ([u64; 3], [u64; 3]) {
    let (file, _) = file(flags);
    let (handle, device) = (register(&file), device_memory(SIZE));
    assert_eq!(read(handle, device, SIZE, 0, 0), SIZE as isize);
    assert_eq!(write(handle, device, 4096, 0, 0), 4096);
    let counted = statistics();
    let gpu = counted.per_gpu_stats[0];
    assert_eq!((gpu.n_total_reads, gpu.n_total_writes), (1, 1));
    assert_eq!((gpu.read_bytes, gpu.writes_bytes), (SIZE as u64, 4096));
    let basic = counted.detailed.basic;
    assert_eq!((basic.read_bytes, basic.write_bytes), (SIZE as u64, 4096));
    (
        [gpu.n_p2p_reads, gpu.n_nvfs_reads, gpu.n_posix_reads],
        [gpu.n_p2p_writes, gpu.n_nvfs_writes, gpu.n_posix_writes],
    )
}

#[test]
fn peer_to_peer_is_counted_as_such() {
    let _session = Session::open("p2p");
    assert_eq!(paths(libc::O_DIRECT), ([1, 0, 0], [1, 0, 0]));
}

#[test]
fn nvidia_fs_is_counted_as_such() {
    let _session = Session::open("nvfs");
    assert_eq!(paths(libc::O_DIRECT), ([0, 1, 0], [0, 1, 0]));
}

#[test]
fn the_posix_fallback_is_counted_as_such() {
    let _session = Session::open("posix");
    assert_eq!(paths(libc::O_DIRECT), ([0, 0, 1], [0, 0, 1]));
}

#[test]
fn a_file_without_o_direct_never_takes_a_direct_path() {
    let _session = Session::open("p2p");
    assert_eq!(paths(0), ([0, 0, 1], [0, 0, 1]));
}

#[test]
fn an_absent_cufile_does_not_open() {
    let _session = Session::prepare("absent");
    answers!(CU_FILE_DRIVER_NOT_INITIALIZED, cuFileDriverOpen());
    let (file, _) = file(0);
    let mut handle = null_mut();
    let mut description = CUfileDescr::for_fd(file.as_raw_fd());
    let answer = CU_FILE_DRIVER_NOT_INITIALIZED;
    answers!(answer, cuFileHandleRegister(&mut handle, &mut description));
}

#[test]
fn the_posix_fallback_can_be_disabled() {
    let _session = Session::prepare("posix");
    let allowed = CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE;
    answers!(CU_FILE_SUCCESS, cuFileSetParameterBool(allowed, false));
    answers!(CU_FILE_DRIVER_NOT_INITIALIZED, cuFileDriverOpen());
    answers!(CU_FILE_SUCCESS, cuFileSetParameterBool(allowed, true));
    answers!(CU_FILE_SUCCESS, cuFileDriverOpen());
    answers!(
        CU_FILE_DRIVER_ALREADY_OPEN,
        cuFileSetParameterBool(allowed, false)
    );
}

#[test]
fn properties_distinguish_the_modes() {
    for (mode, nvidia_fs, peer_to_peer) in [
        ("p2p", false, true),
        ("nvfs", true, false),
        ("posix", false, false),
    ] {
        let _session = Session::open(mode);
        let mut found = CUfileDrvProps::default();
        answers!(CU_FILE_SUCCESS, cuFileDriverGetProperties(&mut found));
        assert_eq!(found.nvfs.major_version > 0, nvidia_fs, "{mode}");
        assert_eq!(
            found.fflags & (1 << CU_FILE_P2P_SUPPORTED) != 0,
            peer_to_peer,
            "{mode}"
        );
        assert_eq!(
            found.nvfs.dstatusflags != 0,
            nvidia_fs || peer_to_peer,
            "{mode}"
        );
    }
}

#[test]
fn transfers_of_any_alignment_move_the_right_bytes() {
    let _session = Session::open("nvfs");
    let (file, bytes) = file(libc::O_DIRECT);
    let (handle, device) = (register(&file), device_memory(SIZE));
    for (size, at, offset) in [
        (1, 0, 0),
        (4096, 4096, 4096),
        (777, 4095, 3),
        (70_001, 13, 999),
    ] {
        assert_eq!(read(handle, device, size, at, offset), size as isize);
        let (at, place) = (at as usize, device + offset as u64);
        assert_eq!(peek(place, size), bytes[at..at + size]);
    }
    assert_eq!(statistics().per_gpu_stats[0].n_unaligned_reads, 3);
}

#[test]
fn a_write_does_not_change_adjacent_bytes() {
    let _session = Session::open("p2p");
    let (file, mut bytes) = file(0);
    let (handle, device) = (register(&file), device_memory(3000));
    let sent = pattern(3000, 99);
    done!(cudasim_poke(device, sent.as_ptr().cast(), sent.len()));
    assert_eq!(write(handle, device, 2000, 5001, 1000), 2000);
    bytes[5001..7001].copy_from_slice(&sent[1000..]);
    let mut found = vec![0; SIZE];
    file.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(found, bytes);
}

#[test]
fn a_read_at_the_end_is_short() {
    let _session = Session::open("posix");
    let (file, _) = file(0);
    let (handle, device) = (register(&file), device_memory(4096));
    assert_eq!(read(handle, device, 4096, SIZE as i64 - 100, 0), 100);
    assert_eq!(read(handle, device, 4096, SIZE as i64, 0), 0);
}

#[test]
fn failures_are_negative_or_set_errno() {
    let _session = Session::open("posix");
    let (file, _) = file(0);
    let (handle, device) = (register(&file), device_memory(4096));
    let code = |code: i32| -(code as isize);
    assert_eq!(
        read(null_mut(), device, 1, 0, 0),
        code(CU_FILE_HANDLE_NOT_REGISTERED)
    );
    assert_eq!(read(handle, device, 1, -1, 0), code(CU_FILE_INVALID_VALUE));
    assert_eq!(
        read(handle, device, 4097, 0, 0),
        code(CU_FILE_CUDA_POINTER_RANGE_ERROR)
    );
    fail(Some("cufileread:1:5021,cufileread:2,cufilewrite:1:28"));
    assert_eq!(read(handle, device, 1, 0, 0), -5021);
    assert_eq!(read(handle, device, 1, 0, 0), -1);
    assert_eq!(
        std::io::Error::last_os_error().raw_os_error(),
        Some(libc::EIO)
    );
    assert_eq!(write(handle, device, 1, 0, 0), -1);
    assert_eq!(
        std::io::Error::last_os_error().raw_os_error(),
        Some(libc::ENOSPC)
    );
    fail(None);
    done!(cuMemFree_v2(device));
    assert_eq!(
        read(handle, device, 1, 0, 0),
        code(CU_FILE_CUDA_POINTER_INVALID)
    );
    assert_eq!(statistics().detailed.basic.read_ops.err, 6);
}

#[test]
fn device_memory_needs_a_current_context() {
    let _session = Session::open("posix");
    let (file, _) = file(0);
    let (handle, device) = (register(&file) as usize, device_memory(4096));
    let moved = std::thread::spawn(move || read(handle as *mut c_void, device, 1, 0, 0));
    assert_eq!(
        moved.join().unwrap(),
        -(CU_FILE_INVALID_CONTEXT_ERROR as isize)
    );
}

#[test]
fn the_clients_descriptor_must_stay_open() {
    let _session = Session::open("posix");
    let (file, _) = file(0);
    let (handle, device) = (register(&file), device_memory(4096));
    drop(file);
    assert_eq!(read(handle, device, 1, 0, 0), -1);
    assert_eq!(
        std::io::Error::last_os_error().raw_os_error(),
        Some(libc::EBADF)
    );
}

#[test]
fn a_descriptor_is_registered_once() {
    let _session = Session::open("posix");
    let (file, _) = file(0);
    let handle = register(&file);
    let mut second = null_mut();
    let mut description = CUfileDescr::for_fd(file.as_raw_fd());
    let answer = CU_FILE_HANDLE_ALREADY_REGISTERED;
    answers!(answer, cuFileHandleRegister(&mut second, &mut description));
    assert_eq!(cudasim_live_cufile_handles(), 1);
    // SAFETY: the handle is registered and not used again.
    unsafe { cuFileHandleDeregister(handle) };
    assert_eq!(cudasim_live_cufile_handles(), 0);
    register(&file);
}

#[test]
fn a_buffer_is_registered_once_and_bounds_its_transfers() {
    let _session = Session::open("posix");
    let (file, _) = file(0);
    let (handle, device) = (register(&file), device_memory(8192));
    let base = device as *const c_void;
    answers!(CU_FILE_SUCCESS, cuFileBufRegister(base, 4096, 0));
    answers!(
        CU_FILE_MEMORY_ALREADY_REGISTERED,
        cuFileBufRegister(base, 4096, 0)
    );
    let beyond = -(CU_FILE_INVALID_MAPPING_RANGE as isize);
    assert_eq!(read(handle, device, 4096, 0, 1), beyond);
    assert_eq!(read(handle, device, 4095, 0, 1), 4095);
    assert_eq!(cudasim_live_cufile_buffers(), 1);
    answers!(CU_FILE_SUCCESS, cuFileBufDeregister(base));
    answers!(CU_FILE_INVALID_VALUE, cuFileBufDeregister(base));
    answers!(
        CU_FILE_CUDA_POINTER_RANGE_ERROR,
        cuFileBufRegister(base, 8193, 0)
    );
    assert_eq!(statistics().per_gpu_stats[0].n_mmap_ok, 1);
}

#[test]
fn host_memory_is_supported() {
    let _session = Session::open("p2p");
    let (file, bytes) = file(libc::O_DIRECT);
    let handle = register(&file);
    let mut found = vec![0u8; 5000];
    assert_eq!(read(handle, found.as_mut_ptr() as u64, 5000, 7, 0), 5000);
    assert_eq!(found, bytes[7..5007]);
    assert_eq!(statistics().per_gpu_stats[0].n_total_reads, 0);
}

#[test]
fn statistics_count_only_while_they_are_started() {
    let _session = Session::prepare("posix");
    let (file, _) = file(0);
    let (handle, device) = (register(&file), device_memory(100));
    answers!(CU_FILE_SUCCESS, cuFileSetStatsLevel(3));
    assert_eq!(read(handle, device, 100, 0, 0), 100);
    assert_eq!(statistics().detailed.basic.read_ops.ok, 0);
    answers!(CU_FILE_SUCCESS, cuFileStatsStart());
    assert_eq!(read(handle, device, 100, 0, 0), 100);
    assert_eq!(statistics().detailed.basic.read_ops.ok, 1);
    answers!(CU_FILE_SUCCESS, cuFileSetStatsLevel(1));
    let mut found = CUfileStatsLevel3::default();
    answers!(CU_FILE_INVALID_VALUE, cuFileGetStatsL3(&mut found));
}
