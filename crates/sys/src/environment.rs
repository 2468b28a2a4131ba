//! Environment variables. All that Penstock reads goes through here, so that each says what it may do.

use std::env;
use std::ffi::OsString;
use std::sync::OnceLock;

/// The value of a variable that names no file, and so cannot give a program rights to another.
pub fn setting(name: &str) -> Option<OsString> {
    env::var_os(name)
}

/// As [`setting`]; `None` if the value is not UTF-8.
pub fn text(name: &str) -> Option<String> {
    setting(name)?.into_string().ok()
}

/// The value of a variable that names a file, a folder or a library; an empty one counts as unset.
///
/// As secure_getenv(3): a program that runs with more rights than the user who started it, as a
/// setuid or setgid program does, must not load, read or write what that user names.
pub fn path(name: &str) -> Option<OsString> {
    if is_secure() {
        return None;
    }
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Whether the kernel asks for secure execution: the rights come from the program's file.
fn is_secure() -> bool {
    static IS_SECURE: OnceLock<bool> = OnceLock::new();
    // SAFETY: getauxval reads what the kernel has given the process.
    *IS_SECURE.get_or_init(|| unsafe { libc::getauxval(libc::AT_SECURE) != 0 })
}
