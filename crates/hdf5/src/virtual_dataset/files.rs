//! Finds the source files of a virtual dataset where HDF5 looks for them.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

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
pub(crate) fn numbered(name: &OsStr, number: u64) -> (PathBuf, bool) {
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
        let name = OsStr::new("50%%.h5");
        assert_eq!(numbered(name, 0), (PathBuf::from("50%.h5"), false));
        let name = OsStr::new("a%b-%b%%b.h5");
        assert_eq!(numbered(name, 12), (PathBuf::from("a12-12%b.h5"), true));
    }
}
