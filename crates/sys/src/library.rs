//! Finds and opens a shared library by a list of candidate names.

use std::ffi::{CStr, CString, OsStr, OsString, c_void};
use std::fmt;
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Mutex, OnceLock, PoisonError};

use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW};

use crate::environment;

/// The reason why a library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// The names that were tried, each with the loader's error.
    pub what: String,
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Absent {}

static EXTRA_FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Adds folders to search for cuFile, nvCOMP and NVTX: folders that hold libraries, or Python
/// `site-packages` folders, under which the folders of NVIDIA's wheels are searched.
///
/// Call it before the first use of [`cufile`](crate::cufile::cufile),
/// [`nvcomp`](crate::nvcomp::nvcomp) or [`nvtx`](crate::nvtx::nvtx), which cache their result, even
/// a failure, for the life of the process.
pub fn add_library_folders(folders: &[PathBuf]) {
    let mut extra = EXTRA_FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
    for folder in folders {
        if !extra.contains(folder) {
            extra.push(folder.clone());
        }
    }
}

/// Where a library may be. The loader tries each of `names` alone, then in each of `folders`.
pub(crate) struct Search<'a> {
    /// The name of the library in [`Absent`].
    pub title: &'a str,
    /// The environment variable that overrides the search.
    pub variable: &'a str,
    pub names: &'a [&'a str],
    pub folders: fn() -> Vec<PathBuf>,
}

/// An open library. Dropping it does not close it: the foreign library may have started threads or
/// registered exit handlers whose code must stay mapped, and tables hold its function pointers.
pub(crate) struct Library {
    handle: mem::ManuallyDrop<Handle>,
    path: PathBuf,
}

impl Search<'_> {
    /// The path of the library that the environment names.
    pub(crate) fn override_path(&self) -> Option<OsString> {
        environment::path(self.variable)
    }

    /// Opens the first candidate that loads. `override_path`, if given, is the only candidate.
    ///
    /// A plain name also finds a copy that the process has already loaded from elsewhere, because
    /// the loader compares sonames before it searches folders.
    pub(crate) fn open(&self, override_path: Option<&OsStr>) -> Result<Library, Absent> {
        if let Some(path) = override_path {
            return Library::open(Path::new(path)).map_err(|reason| Absent {
                what: format!(
                    "{}: {}={}: {reason}",
                    self.title,
                    self.variable,
                    path.display()
                ),
            });
        }
        let mut refused = Vec::new();
        for name in self.names {
            match Library::open(Path::new(name)) {
                Ok(library) => return Ok(library),
                Err(reason) => refused.push(reason),
            }
        }
        let mut without = Vec::new();
        for folder in (self.folders)() {
            let mut is_without = true;
            for path in self.names.iter().map(|name| folder.join(name)) {
                if !path.exists() {
                    continue;
                }
                is_without = false;
                match Library::open(&path) {
                    Ok(library) => return Ok(library),
                    Err(reason) => refused.push(reason),
                }
            }
            if is_without {
                without.push(folder.display().to_string());
            }
        }
        let mut what = format!("{}: tried {}", self.title, refused.join("; "));
        if !without.is_empty() {
            what.push_str("; not in the folders ");
            what.push_str(&without.join(", "));
        }
        Err(Absent { what })
    }
}

impl Library {
    /// Opens `path` with local symbols, so that they cannot replace those of another copy. The error
    /// is the loader's message, which contains the path.
    fn open(path: &Path) -> Result<Self, String> {
        // SAFETY: loading runs the library's initialisers. The candidates are vendor libraries and
        // those that the user named, whose initialisers may run on any thread.
        match unsafe { Handle::open(Some(path), RTLD_NOW | RTLD_LOCAL) } {
            Ok(handle) => Ok(Self {
                handle: mem::ManuallyDrop::new(handle),
                path: path.to_owned(),
            }),
            Err(error) => {
                let reason = match &error {
                    libloading::Error::DlOpen { source } => source.to_string(),
                    other => other.to_string(),
                };
                let shown = path.display().to_string();
                if reason.contains(&shown) {
                    Err(reason)
                } else {
                    Err(format!("{shown}: {reason}"))
                }
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The function exported under the first of `symbols` that exists.
    ///
    /// # Safety
    /// `F` must be a function pointer type with the signature of each of `symbols`.
    pub(crate) unsafe fn optional<F: Copy>(&self, symbols: &[&str]) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        symbols.iter().find_map(|symbol| {
            // SAFETY: the type is only used as an address here.
            let found = unsafe { self.handle.get::<*mut c_void>(symbol.as_bytes()) };
            let address = found.ok()?.as_raw_ptr();
            // SAFETY: the address is not null, the signature is right by contract, and the library is
            // never closed, so the function stays mapped.
            (!address.is_null()).then(|| unsafe { mem::transmute_copy(&address) })
        })
    }

    /// As [`Library::optional`], but fails if none of `symbols` exists.
    ///
    /// # Safety
    /// As for [`Library::optional`].
    pub(crate) unsafe fn required<F: Copy>(&self, symbols: &[&str]) -> Result<F, Absent> {
        // SAFETY: same contract.
        unsafe { self.optional(symbols) }.ok_or_else(|| Absent {
            what: format!(
                "{}: opened, but it does not export {}",
                self.path.display(),
                symbols.join(" or ")
            ),
        })
    }
}

/// Declares a table of foreign functions. Each function has a field name, the symbols that provide it
/// in order of preference (the field name itself if none is given), and a signature. The table opens
/// only if all functions under `required` exist; those under `optional` are an `Option`.
macro_rules! table {
    (
        $(#[$meta:meta])*
        $Table:ident {
            required { $(
                $(#[$required_meta:meta])*
                fn $required:ident $(= $($required_symbol:literal)|+)?
                    ($($required_arg:ident: $required_type:ty),*) $(-> $required_return:ty)?;
            )* }
            optional { $(
                $(#[$optional_meta:meta])*
                fn $optional:ident $(= $($optional_symbol:literal)|+)?
                    ($($optional_arg:ident: $optional_type:ty),*) $(-> $optional_return:ty)?;
            )* }
        }
    ) => {
        $(#[$meta])*
        #[allow(non_snake_case, clippy::type_complexity)]
        pub struct $Table {
            $(
                $(#[$required_meta])*
                pub $required:
                    unsafe extern "C" fn($($required_arg: $required_type),*) $(-> $required_return)?,
            )*
            $(
                $(#[$optional_meta])*
                pub $optional: Option<
                    unsafe extern "C" fn($($optional_arg: $optional_type),*) $(-> $optional_return)?,
                >,
            )*
            path: ::std::path::PathBuf,
        }

        impl $Table {
            /// The functions of an open library.
            pub(crate) fn of(
                library: &$crate::library::Library,
            ) -> Result<Self, $crate::library::Absent> {
                Ok(Self {
                    $(
                        // SAFETY: the signature is the one that the library's header gives.
                        $required: unsafe {
                            library.required($crate::library::symbols!(
                                $required $(= $($required_symbol)|+)?
                            ))?
                        },
                    )*
                    $(
                        // SAFETY: the signature is the one that the library's header gives.
                        $optional: unsafe {
                            library.optional($crate::library::symbols!(
                                $optional $(= $($optional_symbol)|+)?
                            ))
                        },
                    )*
                    path: library.path().to_owned(),
                })
            }

            /// The name or path by which the library was opened.
            pub fn library_path(&self) -> &::std::path::Path {
                &self.path
            }
        }
    };
}
pub(crate) use table;

macro_rules! symbols {
    ($field:ident) => {
        &[stringify!($field)]
    };
    ($field:ident = $($symbol:literal)|+) => {
        &[$($symbol),+]
    };
}
pub(crate) use symbols;

/// Folders to search after the loader's own: CUDA toolkits, the folders given to
/// [`add_library_folders`], and NVIDIA's wheels in the `site-packages` that Penstock is in.
/// `wheel_folders` are the folders under `site-packages` in which wheels install the library.
pub(crate) fn vendor_folders(wheel_folders: &[&str]) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let mut add = |folder: PathBuf| {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    };
    let toolkits = ["CUDA_HOME", "CUDA_PATH"]
        .into_iter()
        .filter_map(environment::path)
        .map(PathBuf::from)
        .chain([PathBuf::from("/usr/local/cuda")]);
    for toolkit in toolkits {
        add(toolkit.join("lib64"));
        add(toolkit.join(TOOLKIT_TARGET).join("lib"));
    }
    let extra = EXTRA_FOLDERS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    for folder in extra {
        add(folder.clone());
        for wheel in wheel_folders {
            add(folder.join(wheel));
        }
    }
    if let Some(packages) = own_path().as_deref().and_then(site_packages_of) {
        for wheel in wheel_folders {
            add(packages.join(wheel));
        }
    }
    folders
}

const TOOLKIT_TARGET: &str = if cfg!(target_arch = "aarch64") {
    "targets/sbsa-linux"
} else {
    "targets/x86_64-linux"
};

/// A program or shared object of this process.
pub(crate) struct Object {
    pub path: PathBuf,
    pub base: usize,
}

/// The loader's description of an address; `None` if no object contains it.
fn description_of(address: *const c_void) -> Option<libc::Dl_info> {
    // SAFETY: `Dl_info` is plain data for which all zeros is a valid value.
    let mut info: libc::Dl_info = unsafe { mem::zeroed() };
    // SAFETY: `dladdr` accepts any address and fills `info`.
    let found = unsafe { libc::dladdr(address, &mut info) };
    (!address.is_null() && found != 0 && !info.dli_fname.is_null()).then_some(info)
}

/// The object that contains an address.
pub(crate) fn object_of(address: *const c_void) -> Option<Object> {
    let info = description_of(address)?;
    // SAFETY: the loader's name of an object is a C string that lives as long as the object.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(Object {
        path: PathBuf::from(OsStr::from_bytes(name.to_bytes())),
        base: info.dli_fbase as usize,
    })
}

/// The name of the exported function that contains an instruction of the calling thread's stack.
pub fn function_at(code: *const c_void) -> Option<&'static CStr> {
    let name = description_of(code)?.dli_sname;
    // SAFETY: the loader's name of a function is a C string that lives as long as the object, which
    // the thread is about to return to.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })
}

/// The handle of `name`, a soname or a path, if it is loaded. The library stays loaded until the
/// handle is closed.
pub(crate) fn loaded(name: &OsStr) -> Option<NonNull<c_void>> {
    let name = CString::new(name.as_bytes()).ok()?;
    // SAFETY: with RTLD_NOLOAD no library is loaded and no initialiser runs.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_NOW) };
    NonNull::new(handle)
}

/// The file that this code was loaded from.
fn own_path() -> Option<PathBuf> {
    object_of(own_path as *const c_void).map(|object| object.path)
}

/// Returns whether this is a copy of a library that was loaded from a descriptor: that of a forked child,
/// in which the library of its parent is still there.
pub fn is_copy() -> bool {
    static IS_COPY: OnceLock<bool> = OnceLock::new();
    *IS_COPY.get_or_init(|| own_path().is_some_and(|path| path.starts_with("/proc")))
}

/// The folder `S` of a library at `S/penstock/lib/libpenstock.so`.
fn site_packages_of(library: &Path) -> Option<&Path> {
    let lib = library.parent()?;
    let package = lib.parent()?;
    let is_package = lib.file_name()? == "lib" && package.file_name()? == "penstock";
    is_package.then(|| package.parent()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search<'a>(names: &'a [&'a str], folders: fn() -> Vec<PathBuf>) -> Search<'a> {
        Search {
            title: "test library",
            variable: "PENSTOCK_TEST_LIBRARY",
            names,
            folders,
        }
    }

    #[test]
    fn an_absent_library_names_everything_that_was_tried() {
        let names = ["libpenstock-none.so.1", "libpenstock-none.so"];
        let absent = search(&names, || vec![PathBuf::from("/penstock-no-folder")])
            .open(None)
            .err()
            .expect("no such library exists");
        for part in [
            "test library",
            "libpenstock-none.so.1: cannot open shared object file",
            "libpenstock-none.so: cannot open shared object file",
            "not in the folders /penstock-no-folder",
        ] {
            assert!(absent.what.contains(part), "{part:?} not in {absent}");
        }
    }

    #[test]
    fn an_override_that_does_not_open_has_no_fallback() {
        let path = OsStr::new("/penstock-no-folder/override.so");
        let absent = search(&["libm.so.6"], Vec::new)
            .open(Some(path))
            .err()
            .expect("libm must not replace the override");
        assert!(
            absent
                .what
                .contains("PENSTOCK_TEST_LIBRARY=/penstock-no-folder/override.so"),
            "{absent}"
        );
        assert!(!absent.what.contains("libm"), "{absent}");
    }

    #[test]
    fn a_file_that_is_not_a_library_is_absent_with_the_loaders_reason() {
        let path = std::env::current_exe()
            .unwrap()
            .with_extension("not-a-library");
        std::fs::write(&path, b"text").unwrap();
        let absent = search(&[], Vec::new).open(Some(path.as_os_str())).err();
        std::fs::remove_file(&path).unwrap();
        let what = absent.expect("a text file cannot be loaded").what;
        assert!(
            what.contains("file too short") || what.contains("ELF"),
            "{what}"
        );
    }

    #[test]
    fn functions_come_from_the_first_symbol_that_exists() {
        let library = search(&["libm.so.6"], Vec::new).open(None).unwrap();
        // SAFETY: `cos` has this signature in libm.
        let cos: unsafe extern "C" fn(f64) -> f64 =
            unsafe { library.required(&["cos_v9", "cos"]) }.unwrap();
        // SAFETY: `cos` accepts any number.
        assert_eq!(unsafe { cos(0.0) }, 1.0);
        // SAFETY: no such function exists, so none can be called with a wrong signature.
        let missing = unsafe { library.required::<unsafe extern "C" fn()>(&["cos_v9"]) };
        assert_eq!(
            missing.unwrap_err().what,
            "libm.so.6: opened, but it does not export cos_v9"
        );
    }

    #[test]
    fn added_folders_are_searched_directly_and_as_site_packages() {
        add_library_folders(&[PathBuf::from("/penstock-added")]);
        let folders = vendor_folders(&["nvidia/cufile/lib"]);
        assert!(folders.contains(&PathBuf::from("/penstock-added")));
        assert!(folders.contains(&PathBuf::from("/penstock-added/nvidia/cufile/lib")));
    }

    #[test]
    fn site_packages_is_found_only_for_an_installed_library() {
        assert_eq!(
            site_packages_of(Path::new("/v/site-packages/penstock/lib/libpenstock.so")),
            Some(Path::new("/v/site-packages"))
        );
        assert_eq!(
            site_packages_of(Path::new("/src/target/release/libpenstock.so")),
            None
        );
        assert_eq!(site_packages_of(Path::new("libpenstock.so")), None);
    }

    #[test]
    fn own_path_is_the_file_of_this_program() {
        let own = own_path().expect("dladdr finds this function");
        assert_eq!(
            own.canonicalize().unwrap(),
            std::env::current_exe().unwrap().canonicalize().unwrap()
        );
    }
}
