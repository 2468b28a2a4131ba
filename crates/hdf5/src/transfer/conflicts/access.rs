//! Access sets: what a transfer, or any other operation on a file, reads and writes, and whether
//! the order of two operations matters.

use std::ops::Range;

pub use crate::open_files::Identity;

/// A file, identified by either of two numbers. Both are needed: HDF5 gives a file a new number
/// each time that it opens it again, and a driver need not reveal the descriptor.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileKey {
    /// HDF5's number of the open file.
    pub number: Option<u64>,
    /// Device and inode of its descriptor.
    pub identity: Option<Identity>,
}

/// Key of an object of a file, which all its identifiers have in common.
#[derive(Clone, Copy, Debug)]
pub struct ObjectKey {
    /// The file.
    pub file: FileKey,
    /// HDF5's token of the object in the file.
    pub token: [u8; 16],
}

/// Some elements of a dataset, as the smallest known box around them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Region {
    /// All elements.
    Everything,
    /// One index range for each dimension.
    Box(Vec<Range<u64>>),
}

/// Whether elements are read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// They are read.
    Read,
    /// They are written.
    Write,
}

/// What an operation reads or writes.
#[derive(Clone, Debug)]
pub enum AccessSet {
    /// Some elements of a dataset.
    Elements {
        /// The dataset.
        dataset: ObjectKey,
        /// The elements.
        region: Region,
        /// Whether they are read or written.
        access: Access,
    },
    /// An object as a whole, for instance to close it.
    Object(ObjectKey),
    /// A whole file, for instance to flush it.
    File(FileKey),
    /// Reads of files whose datasets are not known: the sources of a virtual dataset, and external
    /// files.
    Sources(Vec<FileKey>),
    /// Any file.
    All(Access),
}

impl FileKey {
    /// Returns the key of a file that HDF5 need not have open.
    pub fn of_identity(identity: Option<Identity>) -> FileKey {
        FileKey {
            number: None,
            identity,
        }
    }

    /// Returns whether both are the same file, as far as either number shows.
    pub fn is_same(&self, other: &FileKey) -> bool {
        let same = |one: Option<u64>, other: Option<u64>| one.is_some() && one == other;
        same(self.number, other.number)
            || (self.identity.is_some() && self.identity == other.identity)
    }
}

impl ObjectKey {
    /// Returns whether both are the same object.
    pub fn is_same(&self, other: &ObjectKey) -> bool {
        self.token == other.token && self.file.is_same(&other.file)
    }
}

impl Region {
    /// Returns the region between the first and the last element along each dimension; everything
    /// if these are not known.
    pub fn between(bounds: Option<(Vec<u64>, Vec<u64>)>) -> Region {
        let Some((low, high)) = bounds else {
            return Region::Everything;
        };
        let range = |(low, high): (u64, u64)| low..high.saturating_add(1);
        Region::Box(low.into_iter().zip(high).map(range).collect())
    }

    /// Returns the region extended to whole chunks.
    #[must_use]
    pub fn of_chunks(self, chunk: &[u64]) -> Region {
        match self {
            Region::Box(ranges) if ranges.len() == chunk.len() => {
                let whole = |(range, side): (Range<u64>, &u64)| {
                    let side = (*side).max(1);
                    let end = range.end.checked_next_multiple_of(side);
                    range.start / side * side..end.unwrap_or(u64::MAX)
                };
                Region::Box(ranges.into_iter().zip(chunk).map(whole).collect())
            }
            other => other,
        }
    }

    /// Returns the region extended to whole blocks. A block with another number of dimensions
    /// belongs to a one-dimensional view of the dataset.
    #[must_use]
    pub fn of_blocks(self, block: &[u64]) -> Region {
        match &self {
            Region::Box(ranges) if ranges.len() == block.len() => self.of_chunks(block),
            _ => Region::Everything,
        }
    }

    fn overlaps(&self, other: &Region) -> bool {
        let (Region::Box(one), Region::Box(other)) = (self, other) else {
            return true;
        };
        let apart = |(a, b): (&Range<u64>, &Range<u64>)| a.end <= b.start || b.end <= a.start;
        one.len() != other.len() || !one.iter().zip(other).any(apart)
    }
}

impl AccessSet {
    /// Returns whether it is read or written.
    pub fn access(&self) -> Access {
        match self {
            AccessSet::Elements { access, .. } | AccessSet::All(access) => *access,
            AccessSet::Object(_) | AccessSet::File(_) => Access::Write,
            AccessSet::Sources(_) => Access::Read,
        }
    }

    fn files(&self) -> &[FileKey] {
        match self {
            AccessSet::Elements { dataset, .. } | AccessSet::Object(dataset) => {
                std::slice::from_ref(&dataset.file)
            }
            AccessSet::File(file) => std::slice::from_ref(file),
            AccessSet::Sources(files) => files,
            AccessSet::All(_) => &[],
        }
    }

    pub(in crate::transfer) fn object(&self) -> Option<&ObjectKey> {
        match self {
            AccessSet::Elements { dataset, .. } | AccessSet::Object(dataset) => Some(dataset),
            AccessSet::File(_) | AccessSet::Sources(_) | AccessSet::All(_) => None,
        }
    }

    pub(in crate::transfer) fn region(&self) -> Option<&Region> {
        match self {
            AccessSet::Elements { region, .. } => Some(region),
            _ => None,
        }
    }

    /// Extends the elements to whole blocks, because the other elements of each are written back
    /// unchanged.
    #[must_use]
    pub fn of_blocks(mut self, block: &[u64]) -> AccessSet {
        if let AccessSet::Elements { region, .. } = &mut self {
            *region = region.clone().of_blocks(block);
        }
        self
    }

    /// Returns what HDF5 touches when it carries out such a transfer itself. Its buffers extend
    /// past the selection, so a write may also write neighbouring elements as HDF5 found them
    /// earlier. A read of a dataset without storage and fill value reads nothing.
    #[must_use]
    pub fn by_hdf5(mut self) -> AccessSet {
        if let AccessSet::Elements {
            dataset,
            region,
            access,
        } = &mut self
        {
            if *access == Access::Write {
                return AccessSet::Object(*dataset);
            }
            *region = Region::Everything;
        }
        self
    }

    /// Returns whether this is a set of elements of one dataset.
    pub fn is_elements(&self) -> bool {
        matches!(self, AccessSet::Elements { .. })
    }

    /// Returns whether the set is in this file, as far as that is known.
    pub fn is_in(&self, file: &FileKey) -> bool {
        matches!(self, AccessSet::All(_)) || self.files().iter().any(|own| own.is_same(file))
    }

    /// Returns whether two operations may give different results in different orders.
    pub fn conflicts(&self, other: &AccessSet) -> bool {
        if self.access() == Access::Read && other.access() == Access::Read {
            return false;
        }
        if let (Some(one), Some(other_object)) = (self.object(), other.object()) {
            let overlaps = match (self.region(), other.region()) {
                (Some(one), Some(other)) => one.overlaps(other),
                _ => true,
            };
            return overlaps && one.is_same(other_object);
        }
        if matches!(self, AccessSet::All(_)) || matches!(other, AccessSet::All(_)) {
            return true;
        }
        self.files().iter().any(|file| other.is_in(file))
    }
}

#[cfg(test)]
mod tests;
