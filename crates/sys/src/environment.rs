//! Environment variables. Penstock reads all of its variables here, so that each read states what
//! the variable may do.

use std::env;
use std::ffi::OsString;
use std::sync::OnceLock;

/// The value of a variable that names no file. Such a variable cannot redirect a program with more
/// rights than its user to a file.
pub fn setting(name: &str) -> Option<OsString> {
    env::var_os(name)
}

/// As [`setting`]; `None` if the value is empty or not UTF-8.
pub fn text(name: &str) -> Option<String> {
    let text = setting(name)?.into_string().ok()?;
    (!text.is_empty()).then_some(text)
}

/// The value of a variable that names a file, a folder or a library; an empty one counts as unset.
///
/// As secure_getenv(3): a program with more rights than the user that started it, such as a setuid
/// or setgid program, must not load, read or write a path from that user.
pub fn path(name: &str) -> Option<OsString> {
    if is_secure() {
        return None;
    }
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Whether the kernel requires secure execution, because the rights come from the program's file.
fn is_secure() -> bool {
    static IS_SECURE: OnceLock<bool> = OnceLock::new();
    // SAFETY: getauxval reads a value that the kernel has passed to the process.
    *IS_SECURE.get_or_init(|| unsafe { libc::getauxval(libc::AT_SECURE) != 0 })
}
