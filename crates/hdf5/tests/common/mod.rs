//! HDF5 for the tests: that of an h5py wheel, and sample files that h5py writes.

// Not each test program uses all of it.
#![allow(dead_code)]

use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock};

use penstock_engine::Recover;
use penstock_hdf5::library::Session;
use penstock_sys::hdf5::{H5F_ACC_RDONLY, H5P_DEFAULT, Hdf5, hid_t};

/// Names the library; without it one is looked for in the virtual environment.
const VARIABLE: &str = "PENSTOCK_TEST_HDF5";

pub struct Setting {
    pub hdf5: Hdf5,
    pub library: PathBuf,
    pub folder: PathBuf,
    python: PathBuf,
    _keep: tempfile::TempDir,
}

/// HDF5, held by one test at a time: wheels carry a library that is not thread-safe.
pub struct Locked {
    pub setting: &'static Setting,
    _lock: MutexGuard<'static, ()>,
}

/// `None`, with the reason printed, where the machine has no h5py.
pub fn lock() -> Option<Locked> {
    static LOCK: Mutex<()> = Mutex::new(());
    static SETTING: OnceLock<Result<Setting, String>> = OnceLock::new();
    let lock = LOCK.lock().recover();
    match SETTING.get_or_init(set_up) {
        Ok(setting) => Some(Locked {
            setting,
            _lock: lock,
        }),
        Err(reason) => {
            eprintln!("skipped: {reason}");
            None
        }
    }
}

fn set_up() -> Result<Setting, String> {
    let library = library()?;
    let python = library
        .ancestors()
        .map(|folder| folder.join("bin/python"))
        .find(|python| python.exists())
        .ok_or_else(|| format!("no bin/python above {}", library.display()))?;
    load(&library);
    let hdf5 = Hdf5::of_process(Some(&library)).unwrap();
    let keep = tempfile::tempdir().unwrap();
    let setting = Setting {
        hdf5,
        library: library.clone(),
        folder: keep.path().to_owned(),
        python,
        _keep: keep,
    };
    setting.script(&[setting.folder.as_os_str()]);
    Ok(setting)
}

fn library() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return Ok(PathBuf::from(named));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let environments = std::env::var_os("VIRTUAL_ENV").map(PathBuf::from);
    for environment in environments.into_iter().chain([root.join(".venv")]) {
        let packages =
            entries(&environment.join("lib")).map(|python| python.join("site-packages/h5py.libs"));
        let found = packages
            .flat_map(|libs| entries(&libs).collect::<Vec<_>>())
            .find(|path| {
                path.file_name()
                    .and_then(OsStr::to_str)
                    .is_some_and(|n| n.starts_with("libhdf5-"))
            });
        if let Some(found) = found {
            return found.canonicalize().map_err(|e| e.to_string());
        }
    }
    Err(format!(
        "neither {VARIABLE} nor a virtual environment with h5py's wheel names an HDF5"
    ))
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

/// As an import of h5py does. Wheels keep what the library needs beside it.
fn load(library: &Path) {
    let beside = library
        .parent()
        .map(|folder| entries(folder).collect::<Vec<_>>());
    let open = |path: &Path| {
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: the initialisers of these libraries make no demand on the calling thread.
        !unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) }.is_null()
    };
    let is_needed = |path: &&PathBuf| !path.to_string_lossy().contains("libhdf5");
    for _ in 0..2 {
        for needed in beside.iter().flatten().filter(is_needed) {
            open(needed);
        }
    }
    assert!(open(library), "{} cannot be loaded", library.display());
}

impl Setting {
    pub fn script(&self, arguments: &[&OsStr]) {
        self.script_named("samples.py", arguments);
    }

    pub fn script_named(&self, name: &str, arguments: &[&OsStr]) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests")
            .join(name);
        let status = Command::new(&self.python)
            .arg(script)
            .args(arguments)
            .status()
            .unwrap();
        assert!(status.success(), "{name} failed");
    }

    /// File and name of all sample datasets of a kind.
    pub fn datasets(&self, kind: &str) -> Vec<(String, String)> {
        let list = fs::read_to_string(self.folder.join("datasets")).unwrap();
        let words = list.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        words
            .filter(|line| line[2] == kind)
            .map(|line| (line[0].to_owned(), line[1].to_owned()))
            .collect()
    }

    /// # Safety
    /// As for [`Session::begin`].
    pub unsafe fn session(&self) -> Session<'_> {
        // SAFETY: as promised by the caller.
        unsafe { Session::begin(&self.hdf5) }
    }

    pub fn open(&self, file: &str, dataset: &str) -> Opened<'_> {
        self.open_with(&self.folder.join(file), dataset, H5F_ACC_RDONLY)
    }

    pub fn open_with(&self, file: &Path, dataset: &str, flags: u32) -> Opened<'_> {
        let path = CString::new(file.as_os_str().as_bytes()).unwrap();
        let name = CString::new(dataset).unwrap();
        // SAFETY: the texts outlive the calls, and the caller holds the lock.
        let (file, dataset) = unsafe {
            let file = (self.hdf5.H5Fopen)(path.as_ptr(), flags, H5P_DEFAULT);
            (file, (self.hdf5.H5Dopen2)(file, name.as_ptr(), H5P_DEFAULT))
        };
        assert!(file > 0 && dataset > 0, "{path:?} {name:?}");
        Opened {
            hdf5: &self.hdf5,
            file,
            dataset,
        }
    }
}

/// A dataset that is open as long as this lives.
pub struct Opened<'a> {
    hdf5: &'a Hdf5,
    file: hid_t,
    pub dataset: hid_t,
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        // SAFETY: both identifiers are open and ours.
        unsafe {
            (self.hdf5.H5Dclose)(self.dataset);
            (self.hdf5.H5Fclose)(self.file);
        }
    }
}
