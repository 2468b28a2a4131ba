//! Describes the machine and a path as JSON: every fact that decides which route a request takes,
//! with the reason if something is missing.

use std::ffi::CStr;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_sys::cuda;
use serde_json::{Value, json};

use crate::cufile::{self, Mode};
use crate::engine::engine;
use crate::error::{Error, Kind, Result};
use crate::file::layout::{self, Component};
use crate::file::mount::Mount;
use crate::file::residency::{Residency, has_cachestat};
use crate::file::room::limit;
use crate::file::system::FileSystem;
use crate::file::{File, open_fd, page_size};
use crate::fork::refuse_fork;
use crate::gpu::{self, Driver};
use crate::options::{CHOICES, DECODERS, IO_MODES, Options, ROUTES, TRUTHS, name_of};
use crate::profile;
use crate::request::{DEFAULT_QUEUE_DEPTH, DEFAULT_SLOTS, MAX_AUTO_THREADS};
use crate::routes::uring;

/// `PENSTOCK_API_VERSION` of penstock.h.
pub const API_VERSION: i32 = 1;

/// Describes the machine and, given a path, the file system there. Opens the CUDA driver and cuFile
/// if they are installed, since only an attempt shows whether they start.
pub fn describe(path: Option<&Path>) -> Value {
    let location = path.map(Location::find);
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "api_version": API_VERSION,
        "cpu": {
            "cores": cores(),
            "numa_nodes": numa_nodes(),
        },
        "memory": {
            "page_size": page_size(),
            "memlock_limit": memlock_limit(),
        },
        "kernel": kernel(),
        "cuda": describe_cuda(),
        "cufile": describe_cufile(location.as_ref()),
        "io_uring": describe_io_uring(),
        "cachestat": has_cachestat(),
        "file_system": location.as_ref().map(Location::describe),
        "options": describe_options(),
        "tuning": describe_tuning(location.as_ref()),
    })
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn numa_nodes() -> usize {
    let is_node = |name: &str| {
        name.strip_prefix("node")
            .is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let nodes = fs::read_dir("/sys/devices/system/node").map_or(0, |entries| {
        entries
            .flatten()
            .filter(|entry| entry.file_name().to_str().is_some_and(is_node))
            .count()
    });
    // A kernel without NUMA has no such folder.
    nodes.max(1)
}

/// The bytes that an unprivileged process may pin; `None` without a limit.
fn memlock_limit() -> Option<u64> {
    limit(libc::RLIMIT_MEMLOCK).filter(|limit| *limit != libc::RLIM_INFINITY)
}

fn kernel() -> String {
    // SAFETY: utsname is plain data, for which all zero bytes are a valid value.
    let mut name: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: `name` is a valid place for the answer.
    if unsafe { libc::uname(&mut name) } != 0 {
        return String::new();
    }
    // SAFETY: uname ends each field with NUL.
    let release = unsafe { CStr::from_ptr(name.release.as_ptr()) };
    release.to_string_lossy().into_owned()
}

// -- CUDA ---------------------------------------------------------------------------------

fn cuda_driver() -> Result<&'static Driver> {
    refuse_fork()?;
    gpu::driver()
}

fn describe_cuda() -> Value {
    let library = cuda::cuda()
        .ok()
        .map(|c| c.library_path().to_string_lossy());
    let driver = cuda_driver();
    let devices = driver.as_ref().map_err(Error::clone).and_then(|driver| {
        let count = driver.device_count()?;
        Ok((0..count).map(|ordinal| device(driver, ordinal)).collect())
    });
    let (devices, reason): (Vec<Value>, _) = match devices {
        Ok(devices) => (devices, None),
        Err(e) => (Vec::new(), Some(e.to_string())),
    };
    let version = driver.ok().and_then(Driver::version);
    json!({
        "available": reason.is_none(),
        "library": library,
        "driver_version": version.map(|(major, minor)| format!("{major}.{minor}")),
        "reason": reason,
        "devices": devices,
    })
}

fn device(driver: &Driver, ordinal: i32) -> Value {
    let attribute = |name| driver.attribute(ordinal, name);
    let capability = (
        attribute(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        attribute(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    );
    json!({
        "ordinal": ordinal,
        "name": driver.device_name(ordinal),
        "memory_bytes": driver.device_memory(ordinal),
        "compute_capability": format!("{}.{}", capability.0, capability.1),
        "pci_bus_id": driver.pci_bus_id(ordinal),
        "numa_node": driver.numa_node(ordinal),
    })
}

// -- cuFile -------------------------------------------------------------------------------

fn describe_cufile(location: Option<&Location>) -> Value {
    let library = penstock_sys::cufile::cufile();
    let started = start_cufile();
    let taken = match (&started, location) {
        (Ok(_), Some(location)) => location.register(),
        _ => Ok(()),
    };
    let mode = match (&started, &taken) {
        (Ok(driver), Ok(())) => Some(match driver.mode {
            Mode::PeerToPeer => "p2p",
            Mode::NvidiaFs => "nvfs",
            Mode::Compat => "compat",
        }),
        _ => None,
    };
    let reason = match (&library, &started, &taken) {
        (Err(absent), ..) => Some(absent.to_string()),
        (_, Err(e), _) | (_, _, Err(e)) => Some(e.to_string()),
        _ => None,
    };
    json!({
        "available": library.is_ok(),
        "library": library.as_ref().ok().map(|c| c.library_path().to_string_lossy()),
        "version": library.ok().and_then(cufile_version),
        "starts": started.is_ok(),
        "mode": mode,
        "reason": reason,
    })
}

/// Opens cuFile's driver, if CUDA works: otherwise the call would not return.
fn start_cufile() -> Result<&'static cufile::Driver> {
    match cuda_driver() {
        Ok(_) => cufile::driver(),
        Err(e) => Err(Error::new(
            Kind::Unavailable,
            format!("cuFile needs a CUDA driver: {}", e.cause()),
        )),
    }
}

fn cufile_version(cufile: &penstock_sys::cufile::CuFile) -> Option<String> {
    let mut number = 0;
    // SAFETY: `number` is a valid place for the answer.
    let status = unsafe { (cufile.cuFileGetVersion?)(&mut number) };
    status
        .is_success()
        .then(|| format!("{}.{}", number / 1000, number % 1000 / 10))
}

// -- io_uring -----------------------------------------------------------------------------

fn describe_io_uring() -> Value {
    let reason = uring::availability().err().map(|e| e.to_string());
    json!({ "available": reason.is_none(), "reason": reason })
}

// -- file system --------------------------------------------------------------------------

/// The file or folder at a path, or the nearest one above it.
struct Location {
    path: PathBuf,
    /// A regular file there, or else the folder; `None` if neither can be opened.
    opened: Option<OwnedFd>,
    is_file: bool,
    /// Why the description is of another path, or incomplete.
    reason: Option<String>,
}

impl Location {
    fn find(wanted: &Path) -> Location {
        let mut reason = None;
        let mut path = fs::canonicalize(wanted).unwrap_or_else(|e| {
            reason = Some(format!("{}: {e}", wanted.display()));
            nearest_folder(wanted)
        });
        if !path.is_dir() {
            let flags = libc::O_RDONLY | libc::O_NONBLOCK;
            match open_fd(&path, flags) {
                Ok(fd) => {
                    return Location {
                        path,
                        opened: Some(fd),
                        is_file: true,
                        reason,
                    };
                }
                Err(e) => {
                    reason = Some(format!("{}: {e}", path.display()));
                    path = nearest_folder(&path);
                }
            }
        }
        let file = temporary_in(&path)
            .map_err(|e| {
                let unknown = format!("cannot create a file in {}: {e}", path.display());
                reason = Some(match reason.take() {
                    Some(first) => format!("{first}; {unknown}"),
                    None => unknown,
                });
            })
            .ok();
        let is_file = file.is_some();
        Location {
            opened: file.or_else(|| open_fd(&path, libc::O_RDONLY).ok()),
            path,
            is_file,
            reason,
        }
    }

    fn describe(&self) -> Value {
        let fd = self.opened.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let mut system = FileSystem::of(fd);
        if !self.is_file {
            // The result for a folder does not apply to the files in it.
            system.direct = None;
        }
        json!({
            "path": self.path.to_string_lossy(),
            "type": system.name(),
            "magic": format!("0x{:X}", system.magic),
            "direct_io": system.direct.is_some(),
            "memory_alignment": system.direct.map(|d| d.memory),
            "offset_alignment": system.direct.map(|d| d.offset),
            "stripe_size": system.stripe,
            "layout": layout::of(fd).iter().map(component).collect::<Vec<_>>(),
            "file_bytes": self.bytes(),
            "cached": self.bytes().and_then(|bytes| Residency::of(fd, &system).share(fd, 0, bytes)),
            "reason": self.reason,
        })
    }

    /// The length of the file; `None` for a folder.
    fn bytes(&self) -> Option<u64> {
        let about = fs::metadata(&self.path).ok()?;
        (about.is_file() && self.is_file).then_some(about.len())
    }

    fn mount(&self) -> Option<Arc<Mount>> {
        Mount::of(self.opened.as_ref()?.as_raw_fd())
    }

    /// Checks that cuFile accepts files here: the file itself, or an empty one beside it.
    fn register(&self) -> Result<()> {
        let Some(fd) = self.opened.as_ref().filter(|_| self.is_file) else {
            return Err(Error::invalid(
                "cuFile starts, but there is no file here on which to test it",
            ));
        };
        let file = File::of_descriptor(fd.as_raw_fd(), &self.path, false, Options::default())?;
        file.cufile_handle(cufile::driver()?, false).map(drop)
    }
}

/// A component of a file's layout on Lustre, as `lfs getstripe` reports it.
fn component(component: &Component) -> Value {
    json!({
        "start": component.start,
        "end": (component.end != u64::MAX).then_some(component.end),
        "stripe_size": component.stripe_size,
        "stripe_count": component.stripe_count,
        "targets": component.targets,
        "stale": component.stale,
    })
}

/// The nearest existing folder above a path.
fn nearest_folder(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| PathBuf::from("/"));
    absolute
        .ancestors()
        .skip(1)
        .find(|folder| folder.is_dir())
        .map_or_else(|| PathBuf::from("/"), Path::to_owned)
}

/// An empty file in a folder, without a name if the file system supports that.
fn temporary_in(folder: &Path) -> std::io::Result<OwnedFd> {
    let flags = libc::O_RDWR;
    open_fd(folder, flags | libc::O_TMPFILE).or_else(|_| {
        let path = folder.join(format!(".penstock-describe-{}", std::process::id()));
        let fd = open_fd(&path, flags | libc::O_CREAT | libc::O_EXCL)?;
        fs::remove_file(&path)?;
        Ok(fd)
    })
}

// -- tuned profile ------------------------------------------------------------------------

fn describe_tuning(location: Option<&Location>) -> Value {
    let mount = location.and_then(Location::mount);
    profile::describe(mount.as_deref(), cuda_driver().ok())
}

// -- options ------------------------------------------------------------------------------

/// The options of a request that sets none.
fn describe_options() -> Value {
    let outer = match engine() {
        Ok(engine) => engine.outer_options(),
        Err(e) => return json!({ "reason": e.to_string() }),
    };
    let threads = cores().clamp(1, MAX_AUTO_THREADS);
    let text = |value: Option<String>, default: &str| value.unwrap_or_else(|| default.to_owned());
    json!({
        "threads": text(outer.threads.map(|n| n.to_string()), &format!("auto ({threads})")),
        "queue_depth": outer.queue_depth.unwrap_or(DEFAULT_QUEUE_DEPTH).to_string(),
        "slots": outer.slots.unwrap_or(DEFAULT_SLOTS).to_string(),
        "block": text(outer.block.map(|n| n.to_string()), "auto"),
        "route": outer.route.map_or("auto", |route| name_of(route, &ROUTES)),
        "io": outer.io.map_or("auto", |io| name_of(io, &IO_MODES)),
        "direct": outer.direct.map_or("auto", |direct| name_of(direct, &CHOICES)),
        "durable": name_of(outer.durable.unwrap_or(false), &TRUTHS),
        "scratch": text(outer.scratch.map(|n| n.to_string()), "auto"),
        "decode": outer.decode.map_or("auto", |decode| name_of(decode, &DECODERS)),
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_missing_feature_has_a_reason_and_a_present_one_has_none() {
        let described = describe(None);
        for part in ["cuda", "io_uring"] {
            let part = &described[part];
            assert_eq!(
                part["available"] == true,
                part["reason"].is_null(),
                "{part}"
            );
        }
        let cufile = &described["cufile"];
        assert_eq!(
            cufile["starts"] == true,
            cufile["reason"].is_null(),
            "{cufile}"
        );
        if described["cuda"]["available"] == false {
            assert_eq!(cufile["starts"], false);
            assert_eq!(described["cuda"]["devices"], json!([]));
        }
        assert!(described["file_system"].is_null());
    }

    #[test]
    fn a_file_is_described_by_its_own_file_system() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let described = describe(Some(file.path()));
        let system = &described["file_system"];
        let known = FileSystem::of(file.as_raw_fd());
        assert_eq!(system["path"], json!(file.path().canonicalize().unwrap()));
        assert_eq!(system["type"], known.name());
        assert_eq!(system["direct_io"], known.direct.is_some());
        assert!(system["reason"].is_null());
    }

    #[test]
    fn the_length_and_cached_share_are_reported_for_a_file_and_not_for_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, vec![1; 1 << 20]).unwrap();
        let system = describe(Some(&path))["file_system"].take();
        assert_eq!(system["file_bytes"], 1 << 20);
        assert!(system["cached"].as_f64().unwrap() > 0.99);
        let system = describe(Some(folder.path()))["file_system"].take();
        assert!(system["file_bytes"].is_null() && system["cached"].is_null());
    }

    #[test]
    fn a_layout_ends_with_the_file_where_it_names_no_end() {
        let described = |end| {
            component(&Component {
                start: 0,
                end,
                stripe_size: Some(1 << 20),
                stripe_count: None,
                targets: vec![3, 0],
                stale: false,
            })
        };
        assert!(described(u64::MAX)["end"].is_null());
        assert_eq!(described(8 << 20)["end"], 8 << 20);
        assert_eq!(described(0)["targets"], json!([3, 0]));
    }

    #[test]
    fn a_name_that_is_not_utf_8_is_described_with_replacement_characters() {
        use std::os::unix::ffi::OsStrExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(std::ffi::OsStr::from_bytes(b"a\xff"));
        fs::write(&path, b"1").unwrap();
        let system = describe(Some(&path))["file_system"].take();
        assert!(system["path"].as_str().unwrap().ends_with("a\u{fffd}"));
        assert_eq!(system["file_bytes"], 1);
    }

    #[test]
    fn a_path_that_does_not_exist_is_described_by_the_nearest_folder() {
        let folder = tempfile::tempdir().unwrap();
        let system = describe(Some(&folder.path().join("no/such.bin")))["file_system"].take();
        assert_eq!(system["path"], json!(folder.path()));
        assert!(system["reason"].as_str().unwrap().contains("no/such.bin"));
        assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
    }

    #[test]
    fn a_folder_in_which_no_file_can_be_made_is_described_with_the_reason() {
        let system = describe(Some(Path::new("/proc")))["file_system"].take();
        assert_eq!(system["magic"], "0x9FA0");
        assert_eq!(system["direct_io"], false);
        assert!(system["reason"].as_str().unwrap().contains("/proc"));
    }
}
