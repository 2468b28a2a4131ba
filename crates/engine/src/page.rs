//! The system's page size. Arm machines have 4, 16 or 64 KiB, chosen when the kernel is compiled.

use std::sync::OnceLock;

/// The system's page size in bytes.
pub fn page_size() -> u64 {
    static SIZE: OnceLock<u64> = OnceLock::new();
    // SAFETY: sysconf reads a constant of the system.
    *SIZE.get_or_init(|| unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64)
}
