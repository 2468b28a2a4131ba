//! The tuned profile: the options that `penstock tune` found best for a file system and a GPU. They
//! are the level of options between the environment and the defaults.
//!
//! A profile is a file in the user's configuration folder, named after its mount and GPU. A process
//! reads it once, when a request first needs it. A profile that is damaged, or made on a different
//! machine, is not used, and reports give the reason.

mod machine;
mod record;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use penstock_sys::environment;
use serde_json::{Value, json};

use crate::file::File;
use crate::file::mount::Mount;
use crate::file::position::Operation;
use crate::gpu::{Context, Driver};
use crate::options::{Choice, IoMode, Options, RouteName};
use crate::sync::Recover;
pub(crate) use machine::{Gpu, Machine};
pub(crate) use record::{Place, Profile};

/// The profiles that were found, by mount and GPU or by mount and host memory.
pub(crate) type Found = Result<Profile, String>;

pub(crate) struct Profiles {
    /// The folder of profiles; `None` if profiles are turned off or no folder exists.
    folder: Option<PathBuf>,
    /// Whether the folder has no files, so that the mount of a file need not be determined.
    is_empty: OnceLock<bool>,
    /// The key is the mount and the CUDA ordinal, -1 for host memory.
    known: Mutex<Vec<Known>>,
}

struct Known {
    mount: Arc<Mount>,
    device: i32,
    found: Option<Arc<Found>>,
}

impl Profiles {
    /// The profiles of the folder that the environment names.
    pub(crate) fn of_environment() -> Profiles {
        Profiles::new(if is_off() { None } else { folder() })
    }

    fn new(folder: Option<PathBuf>) -> Profiles {
        Profiles {
            folder,
            is_empty: OnceLock::new(),
            known: Mutex::default(),
        }
    }

    /// The profile for a file and a GPU, or host memory without a context.
    pub(crate) fn find(&self, file: &File, context: Option<&Context>) -> Option<Arc<Found>> {
        let folder = self.folder.as_deref()?;
        if *self.is_empty.get_or_init(|| is_empty(folder)) {
            return None;
        }
        let mount = file.mount()?;
        let device = context.map_or(-1, |c| c.device);
        let mut known = self.known.lock().recover();
        let is_it = |known: &&Known| known.device == device && known.mount == mount;
        if let Some(known) = known.iter().find(is_it) {
            return known.found.clone();
        }
        let gpu = context.map(|c| Gpu::of(c.driver, c.device));
        let found = read(&path(folder, &mount, gpu.as_ref()), gpu.as_ref()).map(Arc::new);
        known.push(Known {
            mount,
            device,
            found: found.clone(),
        });
        found
    }
}

fn is_empty(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder);
    entries.is_ok_and(|mut entries| entries.next().is_none()) || !folder.is_dir()
}

/// Whether the environment says PENSTOCK_PROFILE=off.
fn is_off() -> bool {
    environment::setting("PENSTOCK_PROFILE").is_some_and(|word| word.eq_ignore_ascii_case("off"))
}

/// The folder of profiles: PENSTOCK_PROFILE_DIR, or else `penstock` in the user's configuration
/// folder.
fn folder() -> Option<PathBuf> {
    // The XDG specification ignores paths that are not absolute.
    let configuration = || {
        let named = environment::path("XDG_CONFIG_HOME").map(PathBuf::from);
        let usual = || environment::path("HOME").map(|home| PathBuf::from(home).join(".config"));
        named.filter(|path| path.is_absolute()).or_else(usual)
    };
    environment::path("PENSTOCK_PROFILE_DIR")
        .map(PathBuf::from)
        .or_else(|| configuration().map(|folder| folder.join("penstock")))
}

fn path(folder: &Path, mount: &Mount, gpu: Option<&Gpu>) -> PathBuf {
    let of = gpu.map_or_else(|| "host".to_owned(), |gpu| gpu.pci_bus_id.replace(':', "_"));
    folder.join(format!("{}-{of}.json", mount.name()))
}

/// The contents of a profile's file; `None` if it does not exist.
fn read(path: &Path, gpu: Option<&Gpu>) -> Option<Found> {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let named = |why: String| {
        format!("tuned profile {file} not used: {why}; run penstock tune again, or with --clear")
    };
    match record::text_of(path) {
        Ok(Some(text)) => Some(Profile::parse(&text, &Machine::here(), gpu).map_err(named)),
        Ok(None) => Some(Err(named("it is not a profile".to_owned()))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => Some(Err(named(e.to_string()))),
    }
}

/// The options that a profile adds to those that are set. It adds nothing if it has no row for the
/// request, or if the options select another mechanism than the row: the other values of the row
/// were not measured with it.
pub(crate) fn under(
    inner: &Options,
    profile: &Profile,
    operation: Operation,
    bytes: u64,
    place: Place,
) -> Option<Options> {
    /// An open choice means `auto`.
    fn agree<T: PartialEq>(inner: Option<T>, row: Option<T>, auto: T) -> bool {
        inner.is_none_or(|set| set == row.unwrap_or(auto))
    }
    let row = profile.row(operation, bytes, place)?;
    // Cached bytes never bypass the page cache.
    let direct = match place {
        Place::Cache => Choice::No,
        Place::Storage => Choice::Auto,
    };
    let fits = agree(inner.route, row.route, RouteName::Auto)
        && agree(inner.io, row.io, IoMode::Auto)
        && (agree(inner.direct, row.direct, direct)
            || agree(inner.direct, row.direct, Choice::Auto));
    fits.then(|| row.without(inner))
}

// -- for describe ---------------------------------------------------------------------------

/// The folder of profiles, the machine as they name it and, for a mount, its profiles for host
/// memory and each GPU.
pub(crate) fn describe(mount: Option<&Mount>, driver: Option<&Driver>) -> Value {
    let folder = folder();
    let gpus = driver.map_or(0, |driver| driver.device_count().unwrap_or(0));
    let profiles = mount.zip(folder.as_deref()).map(|(mount, folder)| {
        let of_gpu = |ordinal| driver.map(|driver| Gpu::of(driver, ordinal));
        std::iter::once((-1, None))
            .chain((0..gpus).map(|ordinal| (ordinal, of_gpu(ordinal))))
            .map(|(device, gpu)| describe_one(folder, mount, device, gpu.as_ref()))
            .collect::<Vec<_>>()
    });
    json!({
        "folder": folder.as_deref().map(Path::to_string_lossy),
        "off": is_off(),
        "format": record::FORMAT,
        "machine": Machine::here().as_json(),
        "file_system": mount.map(|mount| json!({
            "type": mount.kind,
            "source": mount.source,
            "mount_point": mount.point,
        })),
        "name": mount.map(Mount::name),
        "small_to": record::SMALL_TO,
        "large_from": record::LARGE_FROM,
        "profiles": profiles,
    })
}

fn describe_one(folder: &Path, mount: &Mount, device: i32, gpu: Option<&Gpu>) -> Value {
    let path = path(folder, mount, gpu);
    let found = read(&path, gpu);
    json!({
        "device": device,
        "gpu": gpu.map(Gpu::as_json),
        "path": path.to_string_lossy(),
        "state": match &found {
            None => "none",
            Some(Ok(_)) => "used",
            Some(Err(_)) => "ignored",
        },
        "made": found.as_ref().and_then(|f| f.as_ref().ok()).map(|p| p.made.clone()),
        "reason": found.and_then(Result::err),
    })
}

#[cfg(all(test, not(loom)))]
mod tests;
