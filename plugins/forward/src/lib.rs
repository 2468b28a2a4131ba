//! What the plugins share: they hold no engine, but hand HDF5's calls on to libpenstock.so.

use std::env;
use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

/// The installed library, and that of cargo's folder.
const LIBRARIES: [&str; 2] = ["libpenstock.so.1", "libpenstock.so"];

/// The function `name` of libpenstock.so; null if there is no such library. It is the one that
/// `PENSTOCK_LIBRARY` names, as for the Python package, so that a process never holds two; else, and in
/// setuid programs, the one in the plugin's own folder or in the folder above.
pub fn function(name: &CStr) -> *mut c_void {
    static HANDLE: OnceLock<usize> = OnceLock::new();
    let handle =
        *HANDLE.get_or_init(|| candidates().iter().find_map(|path| open(path)).unwrap_or(0));
    if handle == 0 {
        return ptr::null_mut();
    }
    // SAFETY: the handle is open and never closed.
    unsafe { libc::dlsym(handle as *mut c_void, name.as_ptr()) }
}

fn candidates() -> Vec<PathBuf> {
    // As secure_getenv(3): the program may have more rights than the user who started it.
    // SAFETY: getauxval reads what the kernel has given the process.
    let is_secure = unsafe { libc::getauxval(libc::AT_SECURE) != 0 };
    let named = env::var_os("PENSTOCK_LIBRARY").filter(|path| !path.is_empty() && !is_secure);
    if let Some(path) = named {
        return vec![PathBuf::from(path)];
    }
    let own = own_path();
    let folders = own.as_deref().into_iter().flat_map(Path::ancestors);
    folders
        .skip(1)
        .take(2)
        .flat_map(|folder| LIBRARIES.map(|name| folder.join(name)))
        .collect()
}

fn open(path: &Path) -> Option<usize> {
    let name = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: the library's initialisers make no demand on the calling thread.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    (!handle.is_null()).then_some(handle as usize)
}

/// The file that this code was loaded from, with symbolic links followed: a plugin folder of the
/// user's own may hold links to the plugins.
fn own_path() -> Option<PathBuf> {
    // SAFETY: plain data, for which all zero bytes are a valid value.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is a place for the answer; any address may be asked about.
    let found = unsafe { libc::dladdr(own_path as *const c_void, &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's name of an object is a C string that lives as long as it.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
    std::fs::canonicalize(&path).ok().or(Some(path))
}

/// Defines an exported C function that calls `$inner` with its own arguments and one more, which the
/// named registers of x86-64 and AArch64 take: the address that it returns to, an instruction of
/// whoever called it.
#[macro_export]
macro_rules! with_caller {
    (
        $(#[$meta:meta])*
        fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty
            => $inner:path, $x86_64:literal, $aarch64:literal
    ) => {
        $(#[$meta])*
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            #[cfg(target_arch = "x86_64")]
            ::core::arch::naked_asm!(
                ::core::concat!("mov ", $x86_64, ", [rsp]"), "jmp {inner}", inner = sym $inner
            );
            #[cfg(target_arch = "aarch64")]
            ::core::arch::naked_asm!(
                ::core::concat!("mov ", $aarch64, ", x30"), "b {inner}", inner = sym $inner
            );
        }
    };
}
