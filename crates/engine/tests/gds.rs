//! The cuFile route and its description by `describe`, on the stand-in in each of its modes.
//!
//! cuFile is opened once a process, so every case runs in a process of its own: the test starts
//! this program again for the ignored function that holds the case.

mod common;

use std::path::Path as FilePath;
use std::process::Command;

use common::scene::limit_file_size;
use common::{Memory, Place, Sandbox, open, pattern, plain};
use penstock_engine::Extent;
use penstock_engine::allocate;
use penstock_engine::buffer;
use penstock_engine::describe::describe;
use penstock_engine::error::{Error, Kind};
use penstock_engine::fault::Fault;
use penstock_engine::file::position::Operation;
use penstock_engine::options::Options;
use penstock_engine::report::{Path, Report};
use penstock_engine::request::{Order, run, save};
use penstock_sys::cuda;

const MODES: [&str; 3] = ["p2p", "nvfs", "posix"];

/// Runs an ignored function of this program with environment variables of its own.
fn run_case(name: &str, settings: &[(&str, &str)]) {
    let is_standin = std::env::var("PENSTOCK_CUDA_LIBRARY").is_ok_and(|p| p.contains("standin"));
    if !is_standin {
        eprintln!("SKIPPED: needs the stand-in GPU; run under scripts/standin-gpu");
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", name])
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{name} with {settings:?}:\n{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn run_case_in_each_mode(name: &str) {
    for mode in MODES {
        run_case(name, &[("CUDASIM_CUFILE", mode)]);
    }
}

/// The path that the stand-in takes past the page cache.
fn straight_path() -> Path {
    match std::env::var("CUDASIM_CUFILE").as_deref() {
        Ok("p2p") => Path::GdsP2p,
        Ok("nvfs") => Path::GdsNvfs,
        _ => Path::GdsPosix,
    }
}

fn options(text: &str) -> Options {
    Options::parse(text).unwrap()
}

fn read(place: Place, text: &str) -> Result<Report, Error> {
    let sandbox = Sandbox::new();
    let file = sandbox.file("read.bin", &pattern(3 << 20, 1));
    let memory = place.memory(2 << 20, 0);
    let piece = (4097, 1 << 20, 0);
    memory.transfer(&file, Operation::Read, &[piece], options(text))
}

// -- the cases ------------------------------------------------------------------------------

#[test]
#[ignore = "a case"]
fn odd_reads() {
    let sandbox = Sandbox::new();
    let content = pattern((5 << 20) + 77, 9);
    let file = sandbox.file("read.bin", &content);
    for (text, path) in [
        ("direct=yes", straight_path()),
        ("direct=auto", straight_path()),
        ("direct=auto;threads=3;block=64KiB", straight_path()),
    ] {
        for (offset, length, shift) in [
            (0, content.len() as u64, 0),
            (1, 4095, 3),
            (4095, (1 << 20) + 2, 513),
            (content.len() as u64 - 1, 1, 1),
        ] {
            let memory = Place::Device.memory(length as usize + shift + 16, shift);
            let set = options(text).or(options("route=gds"));
            let report = memory
                .transfer(&file, Operation::Read, &[(offset, length, 0)], set)
                .unwrap();
            let wanted = &content[offset as usize..(offset + length) as usize];
            assert!(memory.bytes(length as usize) == wanted, "{text} {offset}");
            assert!(memory.frame_is_intact(length as usize));
            assert_eq!(report.bytes_by(path), length, "{text} {offset}: {report:?}");
            assert_eq!(report.bytes(), length);
        }
    }
}

#[test]
fn reads_at_any_alignment_are_right_and_reported_on_the_path_that_cufile_took() {
    run_case_in_each_mode("odd_reads");
}

#[test]
#[ignore = "a case"]
fn odd_writes() {
    let sandbox = Sandbox::new();
    for text in ["direct=yes;threads=4;block=16KiB", "direct=auto"] {
        let before = pattern(100_000, 4);
        let file = sandbox.file("write.bin", &before);
        let new = pattern(300_000, 5);
        let memory = Place::Device.memory(new.len() + 5, 5);
        memory.fill(&new);
        // Neighbours that share pages, out of order; the last one extends the file.
        let pieces = [
            (50_001, 20_000, 0),
            (150_001, 249_999 - 70_000, 120_001),
            (70_001, 80_000, 20_000),
            (4096, 8192, 100_000),
            (7, 3, 299_997),
        ];
        let set = options(text).or(options("route=gds"));
        let report = memory
            .transfer(&file, Operation::Write, &pieces, set)
            .unwrap();
        let mut wanted = before;
        wanted.resize(330_000, 0);
        for (offset, length, at) in pieces {
            let (offset, length, at) = (offset as usize, length as usize, at as usize);
            wanted[offset..offset + length].copy_from_slice(&new[at..at + length]);
        }
        assert!(plain(&sandbox.path("write.bin")) == wanted, "wrong bytes");
        let bytes: u64 = pieces.iter().map(|p| p.1).sum();
        assert_eq!(report.bytes(), bytes);
        // Whole pages went straight; with several workers, an end beside them blurs the proof.
        if straight_path() == Path::GdsPosix {
            assert_eq!(report.bytes_by(Path::GdsPosix), bytes, "{report:?}");
        } else {
            assert_eq!(
                report.bytes_by(Path::GdsPosix)
                    + report.bytes_by(straight_path())
                    + report.bytes_by(Path::GdsUnproven),
                bytes,
                "{report:?}"
            );
        }
    }
}

#[test]
fn writes_at_any_alignment_change_their_range_only() {
    run_case_in_each_mode("odd_writes");
}

#[test]
#[ignore = "a case"]
fn a_large_write() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("write.bin", b"");
    let bytes = 32 << 20;
    let memory = Place::Device.memory(bytes as usize, 0);
    let whole = (0, bytes, 0);
    let report = memory
        .transfer(&file, Operation::Write, &[whole], options("route=gds"))
        .unwrap();
    // Eight blocks a worker; how many workers are there in time for one is the scheduler's.
    let workers = penstock_engine::cores().unwrap().min(4) as u64;
    assert_eq!(report.block, bytes / (8 * workers), "{report:?}");
}

#[test]
fn a_large_write_is_shared_by_workers() {
    run_case_in_each_mode("a_large_write");
}

#[test]
#[ignore = "a case"]
fn a_write_of_one_worker() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("write.bin", b"");
    let memory = Place::Device.memory(1 << 20, 0);
    let set = options("route=gds;direct=yes;threads=1");
    let piece = (100, 20_000, 0);
    let report = memory
        .transfer(&file, Operation::Write, &[piece], set)
        .unwrap();
    let whole = 3 * 4096;
    if straight_path() == Path::GdsPosix {
        assert_eq!(report.bytes_by(Path::GdsPosix), 20_000);
    } else {
        assert_eq!(report.bytes_by(straight_path()), whole);
        assert_eq!(report.bytes_by(Path::GdsPosix), 20_000 - whole);
    }
}

#[test]
fn the_ends_of_a_write_are_reported_apart_from_its_pages() {
    run_case_in_each_mode("a_write_of_one_worker");
}

#[test]
#[ignore = "a case"]
fn auto_after_gds() {
    let before = read(Place::Device, "route=auto").unwrap();
    assert_eq!(gds_bytes(&before), 0, "cuFile was opened without need");
    read(Place::Device, "route=gds;direct=yes").unwrap();
    let after = read(Place::Device, "route=auto").unwrap();
    let wanted = match straight_path() {
        Path::GdsPosix => 0,
        _ => 1 << 20,
    };
    assert_eq!(gds_bytes(&after), wanted, "{after:?}");
}

fn gds_bytes(report: &Report) -> u64 {
    [
        Path::GdsP2p,
        Path::GdsNvfs,
        Path::GdsPosix,
        Path::GdsUnproven,
    ]
    .map(|path| report.bytes_by(path))
    .iter()
    .sum()
}

#[test]
fn auto_takes_cufile_only_for_peer_to_peer_files() {
    run_case_in_each_mode("auto_after_gds");
}

#[test]
#[ignore = "a case"]
fn a_save() {
    let sandbox = Sandbox::new();
    let content = pattern(300_000, 5);
    let memory = Place::Device.memory(content.len(), 0);
    memory.fill(&content);
    let target = sandbox.path("saved.bin");
    let set = options("route=gds");
    // SAFETY: the buffer outlives the call.
    let report = unsafe { save(&target, memory.address(), content.len() as u64, set) }.unwrap();
    assert_eq!(gds_bytes(&report), content.len() as u64, "{report:?}");
    assert!(plain(&target) == content);
}

#[test]
fn a_save_takes_the_cufile_route_although_its_file_has_no_name_yet() {
    run_case_in_each_mode("a_save");
}

#[test]
#[ignore = "a case"]
fn described_mode() {
    let sandbox = Sandbox::new();
    let said = describe(Some(&sandbox.path("")));
    let wanted = match straight_path() {
        Path::GdsP2p => "p2p",
        Path::GdsNvfs => "nvfs",
        _ => "compat",
    };
    assert_eq!(said["cufile"]["mode"], wanted, "{said:#}");
    assert_eq!(said["cufile"]["starts"], true);
    assert_eq!(said["cuda"]["available"], true);
    assert_eq!(said["cuda"]["devices"][0]["ordinal"], 0);
}

#[test]
fn describe_names_the_mode_in_which_cufile_started() {
    run_case_in_each_mode("described_mode");
}

#[test]
#[ignore = "a case"]
fn refused_start() {
    let error = read(Place::Device, "route=gds").unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert_eq!(error.gpu_code(), 5001);
    assert!(error.cause().contains("CU_FILE_DRIVER_NOT_INITIALIZED"));
    assert!(error.remedy_text().contains("route=auto"), "{error}");
    assert!(error.path().is_some());
    let report = read(Place::Device, "route=auto").unwrap();
    assert_eq!(report.bytes(), 1 << 20);
    let said = describe(None);
    assert_eq!(said["cufile"]["starts"], false);
    assert!(said["cufile"]["reason"].is_string());
}

#[test]
fn a_cufile_that_does_not_start_is_an_error_for_gds_but_not_for_auto() {
    run_case("refused_start", &[("CUDASIM_CUFILE", "absent")]);
}

#[test]
#[ignore = "a case"]
fn missing_library() {
    let error = read(Place::Device, "route=gds").unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.cause().contains("/nowhere/libcufile.so.0"), "{error}");
    assert!(error.remedy_text().contains("route=auto"), "{error}");
    let said = describe(None);
    assert_eq!(said["cufile"]["available"], false);
    assert!(said["cufile"]["library"].is_null());
}

#[test]
fn the_error_of_a_missing_cufile_names_the_libraries_tried() {
    let library = "/nowhere/libcufile.so.0";
    run_case("missing_library", &[("PENSTOCK_CUFILE_LIBRARY", library)]);
}

#[test]
#[ignore = "a case"]
fn missing_driver() {
    let said = describe(Some(FilePath::new("/proc/self/exe")));
    assert_eq!(said["cuda"]["available"], false);
    let reason = said["cuda"]["reason"].as_str().unwrap();
    assert!(reason.contains("/nowhere/libcuda.so.1"), "{reason}");
    assert_eq!(said["cufile"]["starts"], false);
    let reason = said["cufile"]["reason"].as_str().unwrap();
    assert!(reason.contains("needs a CUDA driver"), "{reason}");
}

#[test]
fn describe_does_not_open_cufile_without_a_cuda_driver() {
    let library = "/nowhere/libcuda.so.1";
    run_case("missing_driver", &[("PENSTOCK_CUDA_LIBRARY", library)]);
}

#[test]
#[ignore = "a case"]
fn refused_file() {
    let error = read(Place::Device, "route=gds").unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.cause().contains("cuFileHandleRegister"), "{error}");
    assert!(error.remedy_text().contains("udev"), "{error}");
    let sandbox = Sandbox::new();
    let said = describe(Some(&sandbox.path("")));
    assert_eq!(said["cufile"]["starts"], true);
    assert!(said["cufile"]["mode"].is_null());
    assert!(said["cufile"]["reason"].as_str().unwrap().contains("udev"));
}

#[test]
fn a_file_that_cufile_refuses_is_an_error_that_names_udev() {
    run_case("refused_file", &[("CUDASIM_FAIL", "cufilehandle:*")]);
}

#[test]
#[ignore = "a case"]
fn failed_call() {
    let error = read(Place::Device, "route=gds;threads=1").unwrap_err();
    // The part up to the first boundary of a block.
    assert_eq!((error.offset(), error.length()), (4097, (1 << 20) - 4097));
    assert!(error.path().is_some());
    match std::env::var("CUDASIM_FAIL").as_deref() {
        Ok("cufileread:1:5030") => {
            assert_eq!((error.kind(), error.gpu_code()), (Kind::Gpu, 5030));
            assert!(error.cause().contains("CU_FILE_INTERNAL_ERROR"), "{error}");
        }
        _ => assert_eq!((error.kind(), error.os_errno()), (Kind::Io, libc::EIO)),
    }
    let again = read(Place::Device, "route=gds;threads=1").unwrap();
    assert_eq!(again.bytes(), 1 << 20);
}

#[test]
fn a_failed_call_is_an_error_with_its_range_and_cufiles_or_the_systems_code() {
    for what in ["cufileread:1:5030", "cufileread:1"] {
        run_case("failed_call", &[("CUDASIM_FAIL", what)]);
    }
}

#[test]
#[ignore = "a case"]
fn a_write_beyond_the_limit() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("limit.bin", b"old");
    let memory = Place::Device.memory(3 << 20, 0);
    limit_file_size(1 << 20);
    for direct in ["no", "yes"] {
        let set = options(&format!("route=gds;threads=1;direct={direct}"));
        let pieces = [(0, 3 << 20, 0)];
        let error = memory
            .transfer(&file, Operation::Write, &pieces, set)
            .unwrap_err();
        assert_eq!(error.os_errno(), libc::EFBIG, "{direct}: {error}");
    }
}

#[test]
fn a_failed_write_has_the_error_of_the_system_call_although_cufile_hides_it() {
    run_case_in_each_mode("a_write_beyond_the_limit");
}

#[test]
#[ignore = "a case"]
fn interrupted_calls() {
    let sandbox = Sandbox::new();
    let content = pattern(1 << 20, 2);
    let file = sandbox.file("read.bin", &content);
    let memory = Place::Device.memory(1 << 20, 0);
    let read = |decide: fn(u64) -> Fault| {
        let pieces = [(0, 1 << 20, 0)];
        let set = options("route=gds;threads=1");
        let faults = Box::new(move |number, _| decide(number));
        memory.faulty(&file, Operation::Read, &pieces, set, Some(faults))
    };
    let report = read(|number| match number {
        0 => Fault::Errno(libc::EINTR),
        _ => Fault::Short(100_000),
    })
    .unwrap();
    assert!(memory.bytes(1 << 20) == content, "wrong bytes");
    assert_eq!(report.io_calls, 11);
    assert_eq!(report.bytes(), 1 << 20);
    let error = read(|number| match number {
        0 => Fault::Short(100_000),
        _ => Fault::Errno(libc::EIO),
    })
    .unwrap_err();
    assert_eq!((error.offset(), error.os_errno()), (100_000, libc::EIO));
}

#[test]
fn short_and_interrupted_calls_continue_and_failed_ones_end_the_request() {
    run_case_in_each_mode("interrupted_calls");
}

#[test]
#[ignore = "a case"]
fn truncated_file() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("read.bin");
    let file = sandbox.file("read.bin", &pattern(1 << 20, 2));
    let memory = Place::Device.memory(1 << 20, 0);
    let cut = open(&path);
    let faults = Box::new(move |number, _| {
        if number == 1 {
            cut.truncate(300_000).unwrap();
        }
        Fault::Short(200_000)
    });
    let pieces = [(0, 1 << 20, 0)];
    let set = options("route=gds;threads=1");
    let error = memory
        .faulty(&file, Operation::Read, &pieces, set, Some(faults))
        .unwrap_err();
    assert_eq!(error.kind(), Kind::EndOfFile);
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_an_end_of_file() {
    run_case_in_each_mode("truncated_file");
}

#[test]
#[ignore = "a case"]
fn open_files() {
    let sandbox = Sandbox::new();
    let device = Place::Device;
    let memory: Memory = device.memory(8192, 0);
    for round in 0..3 {
        let file = sandbox.file("again.bin", &pattern(8192, round));
        for text in ["route=gds;direct=yes", "route=gds;direct=no"] {
            let pieces = [(0, 8192, 0)];
            memory
                .transfer(&file, Operation::Read, &pieces, options(text))
                .unwrap();
        }
        assert!(memory.bytes(8192) == pattern(8192, round));
        assert!(live_handles() > 0);
        drop(file);
        assert_eq!(live_handles(), 0, "a handle outlives its file");
    }
}

#[test]
#[ignore = "a case"]
fn registered_buffers() {
    let sandbox = Sandbox::new();
    let content = pattern(1 << 20, 3);
    let file = sandbox.file("read.bin", &content);
    let memory = Place::Device.memory(1 << 20, 0);
    let address = memory.address();
    assert!(buffer::deregister(address).is_err());
    buffer::register(address, 512 << 10).unwrap();
    buffer::register(address, 512 << 10).unwrap();
    assert!(buffer::register(address, 4096).is_err());
    assert_eq!(live_buffers(), 1);
    for text in ["direct=yes", "direct=no", "direct=no;block=64KiB;threads=3"] {
        // Inside, with a part of the registered buffer before it; across its end; behind it.
        for (from, length) in [(4099, 100_000), ((512 << 10) - 5, 10), (600_000, 77_777)] {
            memory.fill(&vec![0; 1 << 20]);
            let set = options(text).or(options("route=gds"));
            let whole = [(9, length, from)];
            memory
                .transfer(&file, Operation::Read, &whole, set)
                .unwrap();
            let (from, length) = (from as usize, length as usize);
            let bytes = memory.bytes(1 << 20);
            assert!(bytes[from..from + length] == content[9..9 + length]);
            assert!(bytes[..from].iter().all(|&b| b == 0));
        }
    }
    buffer::deregister(address).unwrap();
    assert_eq!(live_buffers(), 1);
    buffer::deregister(address).unwrap();
    assert_eq!(live_buffers(), 0);
    let host = [0_u8; 16];
    let refused = buffer::register(host.as_ptr() as usize, 16).unwrap_err();
    assert_eq!(refused.kind(), Kind::Invalid);
}

#[test]
fn memory_that_is_registered_with_cufile_is_named_by_its_buffer() {
    run_case_in_each_mode("registered_buffers");
}

fn live_handles() -> usize {
    live(c"cudasim_live_cufile_handles")
}

fn live_buffers() -> usize {
    live(c"cudasim_live_cufile_buffers")
}

/// What the stand-in counts.
fn live(name: &std::ffi::CStr) -> usize {
    let library = std::env::var("PENSTOCK_CUDA_LIBRARY").unwrap();
    let path = std::ffi::CString::new(library).unwrap();
    // SAFETY: the stand-in, which is loaded already, exports the function with this signature.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        let function = libc::dlsym(library, name.as_ptr());
        assert!(!function.is_null());
        let count: extern "C" fn() -> usize = std::mem::transmute(function);
        count()
    }
}

#[test]
fn closing_a_file_deregisters_its_cufile_handles() {
    run_case_in_each_mode("open_files");
}

#[test]
fn pinned_memory_is_served_by_the_host_route() {
    if !common::has_gpu() {
        return;
    }
    let report = read(Place::Pinned, "route=gds").unwrap();
    assert_eq!(report.bytes_by(Path::HostBuffered), 1 << 20);
}

#[test]
fn managed_memory_takes_the_staged_route_with_a_note() {
    if !common::has_gpu() {
        return;
    }
    let sandbox = Sandbox::new();
    let before = pattern(100_000, 1);
    let file = sandbox.file("managed.bin", &before);
    let new = pattern(50_001, 2);
    let address = managed(new.len());
    let extent = Extent {
        offset: 777,
        length: new.len() as u64,
        memory: address as usize,
    };
    let extents = [extent];
    let set = options("route=gds;direct=yes");
    let order = Order::new(Operation::Write, &extents, set);
    // SAFETY: both ends are that long, and live until the memory is freed below.
    let report = unsafe {
        allocate::copy(extent.memory, new.as_ptr() as usize, extent.length).unwrap();
        let report = run(&file, order).unwrap();
        allocate::device_free(address).unwrap();
        report
    };
    let mut wanted = before;
    wanted[777..777 + new.len()].copy_from_slice(&new);
    assert!(plain(&sandbox.path("managed.bin")) == wanted, "wrong bytes");
    assert!(report.note.contains("managed memory"), "{report:?}");
    assert_eq!(report.bytes_by(Path::StagedBuffered), extent.length);
}

fn managed(bytes: usize) -> u64 {
    let cuda = cuda::cuda().unwrap();
    let mut context = std::ptr::null_mut();
    let mut address = 0;
    // SAFETY: CUDA is initialised, device 0 exists, and the answers have valid places.
    unsafe {
        assert_eq!((cuda.cuDevicePrimaryCtxRetain)(&mut context, 0), 0);
        assert_eq!((cuda.cuCtxSetCurrent)(context), 0);
        let flags = cuda::CU_MEM_ATTACH_GLOBAL;
        assert_eq!((cuda.cuMemAllocManaged)(&mut address, bytes, flags), 0);
    }
    address
}
