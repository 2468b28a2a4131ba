//! Finds the source files of a virtual dataset where HDF5 looks for them.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use penstock_engine::error::{Error, Kind, Result};

/// Environment variable with a list of folders, which HDF5 reads whenever it looks for a source
/// file.
pub(super) const PREFIXES: &str = "HDF5_VDS_PREFIX";

/// The names and the prefix of a virtual dataset's file.
pub(super) struct Origin {
    /// The name by which it was opened.
    pub name: PathBuf,
    /// The absolute form of that name at the time of opening.
    pub absolute: PathBuf,
    /// The source prefix, as expanded by HDF5.
    pub prefix: Vec<u8>,
}

impl Origin {
    /// Returns the names by which HDF5 tries to open a source file, in its order.
    pub(super) fn candidates(&self, file: &Path, prefixes: Option<OsString>) -> Vec<PathBuf> {
        let mut name = file.as_os_str().as_bytes();
        let mut found = Vec::new();
        if name.starts_with(b"/") {
            found.push(name.to_vec());
            name = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
        }
        let prefixes = prefixes.unwrap_or_default();
        let folders = prefixes.as_bytes().split(|byte| *byte == b':');
        found.extend(
            folders
                .filter(|folder| !folder.is_empty())
                .map(|folder| under(folder, name)),
        );
        if !self.prefix.is_empty() {
            found.push(under(&self.prefix, name));
        }
        found.push(under(folder(&self.absolute), name));
        found.push(name.to_vec());
        let is_link = fs::symlink_metadata(&self.name).is_ok_and(|meta| meta.is_symlink());
        let actual = is_link.then(|| fs::canonicalize(&self.name).ok()).flatten();
        let actual = actual.as_ref().unwrap_or(&self.name);
        found.push(under(folder(actual), name));
        let found = found
            .into_iter()
            .map(|path| PathBuf::from(OsString::from_vec(path)));
        found.collect()
    }
}

/// Returns the path up to and including the last slash.
fn folder(path: &Path) -> &[u8] {
    let path = path.as_os_str().as_bytes();
    let slash = path.iter().rposition(|byte| *byte == b'/');
    &path[..slash.map_or(0, |at| at + 1)]
}

/// Joins the two as texts, so that the name is never treated as an absolute path.
fn under(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = folder.to_vec();
    if !path.is_empty() && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// Returns the name with this running number in place of each `%b`, and whether there is any. `%%`
/// is a literal percent sign.
pub(super) fn numbered(name: &OsStr, number: u64) -> (PathBuf, bool) {
    let mut plain = Vec::new();
    let mut has_number = false;
    let mut bytes = name.as_bytes().iter();
    while let Some(byte) = bytes.next() {
        match (byte, bytes.as_slice().first()) {
            (b'%', Some(b'b')) => {
                bytes.next();
                has_number = true;
                plain.extend_from_slice(number.to_string().as_bytes());
            }
            (b'%', _) => {
                bytes.next();
                plain.push(b'%');
            }
            _ => plain.push(*byte),
        }
    }
    (PathBuf::from(OsString::from_vec(plain)), has_number)
}

/// Returns the name in a limited mapping, which has no running number.
pub(super) fn unescaped(name: &OsStr) -> PathBuf {
    numbered(name, 0).0
}

/// Device and inode.
pub(super) type Identity = (u64, u64);

pub(super) fn identity(meta: &Metadata) -> Identity {
    (meta.dev(), meta.ino())
}

/// A file from which parts of a virtual dataset are read without HDF5.
#[derive(Debug)]
pub struct SourceFile {
    path: PathBuf,
    identity: Identity,
    held: Option<File>,
}

impl SourceFile {
    /// Makes one from a descriptor that HDF5 may close afterwards. Holds a descriptor of its own if
    /// `hold` is set or the file's name no longer leads to it.
    pub(super) fn of_descriptor(descriptor: i32, hold: bool) -> Result<SourceFile> {
        let same = PathBuf::from(format!("/proc/self/fd/{descriptor}"));
        let failed = |cause: std::io::Error| {
            Error::new(
                Kind::Io,
                format!("cannot open HDF5's descriptor of a source file: {cause}"),
            )
        };
        let path = fs::read_link(&same).map_err(failed)?;
        let identity_now = identity(&fs::metadata(&same).map_err(failed)?);
        let is_named = fs::metadata(&path).is_ok_and(|meta| identity(&meta) == identity_now);
        // Opened again instead of duplicated: a duplicate would keep HDF5's lock.
        let held = match hold || !is_named {
            true => Some(File::open(&same).map_err(failed)?),
            false => None,
        };
        Ok(SourceFile {
            path,
            identity: identity_now,
            held,
        })
    }

    /// Returns the path of the file when the plan was made, for messages.
    pub fn name(&self) -> &Path {
        &self.path
    }

    /// Returns the path to open for reading, which is valid while this value lives.
    pub fn path(&self) -> PathBuf {
        match &self.held {
            Some(file) => PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())),
            None => self.path.clone(),
        }
    }

    /// Returns an error if the file opened under [`SourceFile::path`] is another one.
    pub fn verify(&self, opened: &Metadata) -> Result<()> {
        if identity(opened) == self.identity {
            return Ok(());
        }
        let cause = "the file was replaced while it was read through a virtual dataset";
        Err(Error::new(Kind::Io, cause).at(&self.path, 0, 0))
    }

    pub(super) fn identity(&self) -> Identity {
        self.identity
    }

    pub(super) fn descriptor(&self) -> Option<i32> {
        self.held.as_ref().map(AsRawFd::as_raw_fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(file: &str, prefix: &str, prefixes: Option<&str>) -> Vec<String> {
        let origin = Origin {
            name: PathBuf::from("sub/v.h5"),
            absolute: PathBuf::from("/data/sub/v.h5"),
            prefix: prefix.as_bytes().to_vec(),
        };
        let found = origin.candidates(Path::new(file), prefixes.map(OsString::from));
        found
            .iter()
            .map(|path| path.display().to_string())
            .collect()
    }

    #[test]
    fn a_relative_name_is_looked_for_beside_the_virtual_dataset_first() {
        let found = candidates("s.h5", "", None);
        assert_eq!(found, ["/data/sub/s.h5", "s.h5", "sub/s.h5"]);
    }

    #[test]
    fn prefixes_come_before_and_those_of_the_environment_first() {
        let found = candidates("a/s.h5", "/p/", Some(":/one::two"));
        assert_eq!(
            found,
            [
                "/one/a/s.h5",
                "two/a/s.h5",
                "/p/a/s.h5",
                "/data/sub/a/s.h5",
                "a/s.h5",
                "sub/a/s.h5"
            ]
        );
    }

    #[test]
    fn an_absolute_name_is_tried_and_then_its_last_part() {
        let found = candidates("/gone/s.h5", "", None);
        assert_eq!(found, ["/gone/s.h5", "/data/sub/s.h5", "s.h5", "sub/s.h5"]);
    }

    #[test]
    fn percent_signs_are_written_twice_and_numbers_as_b() {
        assert_eq!(unescaped(OsStr::new("50%%.h5")), Path::new("50%.h5"));
        let name = OsStr::new("a%b-%b%%b.h5");
        assert_eq!(numbered(name, 12), (PathBuf::from("a12-12%b.h5"), true));
    }
}
