//! What went wrong, at which range of which file, and what the caller can do about it.

use std::any::Any;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The classes of failure that a caller can act on differently. The numbers are those of
/// `penstock_status` in `penstock.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Kind {
    /// The caller passed something that can never work, such as an option out of range.
    Invalid = 2,
    /// The path does not exist.
    NotFound = 3,
    /// The system denies access.
    Permission = 4,
    /// A system call failed for another reason.
    Io = 5,
    /// The range reaches beyond the end of the file.
    EndOfFile = 6,
    /// The file system is full, or the quota is used up.
    NoSpace = 7,
    /// Host, pinned or GPU memory cannot be allocated.
    Memory = 8,
    /// A call of the CUDA driver, cuFile or nvCOMP failed.
    Gpu = 9,
    /// This machine or file system lacks what the request needs.
    Unavailable = 10,
    /// The request was cancelled before it finished.
    Cancelled = 11,
    /// The process was forked from one that had used the engine.
    Forked = 12,
    /// A defect of Penstock, such as a panic.
    Internal = 13,
}

/// A failure with its file, range, cause and remedy.
///
/// Boxed inside, so that a `Result` on the I/O path stays one pointer wide.
#[derive(Clone, Debug)]
pub struct Error(Box<Details>);

#[derive(Clone, Debug)]
struct Details {
    kind: Kind,
    os_errno: i32,
    gpu_code: i32,
    path: Option<PathBuf>,
    offset: u64,
    length: u64,
    cause: String,
    remedy: String,
}

/// The outcome of a call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A failure without file, range, codes and remedy. `cause` is a clause without a full stop.
    pub fn new(kind: Kind, cause: impl Into<String>) -> Self {
        Error(Box::new(Details {
            kind,
            os_errno: 0,
            gpu_code: 0,
            path: None,
            offset: 0,
            length: 0,
            cause: cause.into(),
            remedy: String::new(),
        }))
    }

    /// A [`Kind::Invalid`] failure.
    pub fn invalid(cause: impl Into<String>) -> Self {
        Error::new(Kind::Invalid, cause)
    }

    /// A failed system call, with a remedy for the common `errno`. `action` names what was tried, in
    /// the form "cannot open the file".
    pub fn os(error: &io::Error, action: &str) -> Self {
        let code = error.raw_os_error().unwrap_or(0);
        let (kind, remedy) = match code {
            libc::ENOENT | libc::ENOTDIR => (
                Kind::NotFound,
                "check the path, and that its folder exists on this machine",
            ),
            libc::EACCES | libc::EPERM | libc::EROFS => (
                Kind::Permission,
                "check the owner and mode of the file and its folder, and that the file system is not mounted read-only",
            ),
            libc::ENOSPC | libc::EDQUOT => (
                Kind::NoSpace,
                "free space on the file system or raise the quota, then write again",
            ),
            libc::EFBIG => (
                Kind::Io,
                "raise the limit of the size of files (ulimit -f), or use a file system that allows larger ones",
            ),
            libc::ENOMEM => (
                Kind::Memory,
                "free memory, or use fewer threads or a smaller block",
            ),
            libc::EIO => (
                Kind::Io,
                "the medium or the connection to it failed: look at the kernel log (dmesg)",
            ),
            libc::EMFILE | libc::ENFILE => (
                Kind::Io,
                "close files, or raise the limit of open files (ulimit -n)",
            ),
            libc::EISDIR => (Kind::Io, "pass the path of a file, not of a folder"),
            libc::EBADF => (
                Kind::Io,
                "open the file for this kind of access: reading, writing or both",
            ),
            _ => (Kind::Io, ""),
        };
        let mut made = Error::new(kind, format!("{action}: {error}"));
        made.0.os_errno = code;
        made.0.remedy = remedy.to_owned();
        made
    }

    /// As [`os`](Self::os), for the system call of this thread that failed last.
    pub fn last_os(action: &str) -> Self {
        Error::os(&io::Error::last_os_error(), action)
    }

    /// A [`Kind::Gpu`] failure: `code` is the `CUresult` or `CUfileOpError`.
    pub fn gpu(code: i32, cause: impl Into<String>) -> Self {
        let mut made = Error::new(Kind::Gpu, cause);
        made.0.gpu_code = code;
        made
    }

    /// The same failure as one of another kind.
    pub(crate) fn of_kind(mut self, kind: Kind) -> Self {
        self.0.kind = kind;
        self
    }

    /// The error of a panic, from the payload that `catch_unwind` returned.
    pub fn panicked(payload: &(dyn Any + Send)) -> Self {
        let what = payload
            .downcast_ref::<&str>()
            .map(|s| (*s).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_default();
        Error::new(Kind::Internal, format!("the library panicked: {what}"))
            .remedy("this is a defect of Penstock: please report it, with what the program did")
    }

    /// The error of a read up to byte `wanted_end` of a file that has `file_size` bytes.
    pub(crate) fn end_of_file(wanted_end: u64, file_size: u64) -> Self {
        Error::new(
            Kind::EndOfFile,
            format!(
                "the file ends at byte {file_size}, before the end of the range at {wanted_end}"
            ),
        )
        .remedy("check offset, shape and dtype against the file, and whether another process truncated it")
    }

    /// Sets what the caller can do about the failure, as a clause in the imperative.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.0.remedy = remedy.into();
        self
    }

    /// Whether an open failed because the process or the system has no descriptor left.
    pub fn is_out_of_descriptors(&self) -> bool {
        matches!(self.0.os_errno, libc::EMFILE | libc::ENFILE)
    }

    /// Puts `what` and a colon before the cause.
    pub fn about(mut self, what: &str) -> Self {
        self.0.cause = format!("{what}: {}", self.0.cause);
        self
    }

    /// Adds the file, unless the failure names one already: the innermost call has the most precise
    /// name.
    pub fn in_file(mut self, path: &Path) -> Self {
        if self.0.path.is_none() {
            self.0.path = Some(path.to_owned());
        }
        self
    }

    /// Adds the range of the file in bytes, unless the failure has one.
    pub fn over(mut self, offset: u64, length: u64) -> Self {
        if self.0.length == 0 {
            self.0.offset = offset;
            self.0.length = length;
        }
        self
    }

    /// Adds the file and the range in bytes, unless the failure names a file.
    pub fn at(mut self, path: &Path, offset: u64, length: u64) -> Self {
        if self.0.path.is_none() {
            self.0.path = Some(path.to_owned());
            self.0.offset = offset;
            self.0.length = length;
        }
        self
    }

    /// The class of the failure.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }
    /// The `errno` of the failed system call, 0 if none failed.
    pub fn os_errno(&self) -> i32 {
        self.0.os_errno
    }
    /// The `CUresult` or `CUfileOpError`, 0 if neither failed.
    pub fn gpu_code(&self) -> i32 {
        self.0.gpu_code
    }
    /// The file that the failure concerns.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }
    /// The offset in bytes of the range that failed.
    pub fn offset(&self) -> u64 {
        self.0.offset
    }
    /// The length in bytes of the range that failed; 0 if the failure concerns no range.
    pub fn length(&self) -> u64 {
        self.0.length
    }
    /// What went wrong.
    pub fn cause(&self) -> &str {
        &self.0.cause
    }
    /// What the caller can do about it; empty if nothing is known.
    pub fn remedy_text(&self) -> &str {
        &self.0.remedy
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let details = &self.0;
        if let Some(path) = &details.path {
            write!(f, "{}", path.display())?;
            if details.length > 0 {
                write!(f, " (offset {}, {} bytes)", details.offset, details.length)?;
            }
            write!(f, ": ")?;
        }
        f.write_str(&details.cause)?;
        if !details.remedy.is_empty() {
            write!(f, "; remedy: {}", details.remedy)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_file_range_cause_and_remedy() {
        let error = Error::os(&io::Error::from_raw_os_error(libc::EIO), "cannot read").at(
            Path::new("/data/a.bin"),
            4096,
            512,
        );
        let text = error.to_string();
        assert!(text.starts_with("/data/a.bin (offset 4096, 512 bytes): cannot read: "));
        assert!(text.contains("remedy: the medium"));
        assert_eq!(error.os_errno(), libc::EIO);
    }

    #[test]
    fn the_innermost_range_is_kept() {
        let error = Error::invalid("x")
            .at(Path::new("inner"), 1, 2)
            .at(Path::new("outer"), 3, 4);
        assert_eq!(error.path(), Some(Path::new("inner")));
        assert_eq!((error.offset(), error.length()), (1, 2));
    }
}
