//! What a transfer, or anything else that is done with a file, reads and writes; and whether the
//! order of two of these matters.

use std::ops::Range;

/// Device and inode of a file, by which it is known under all of its names and handles.
pub type Identity = (u64, u64);

/// A file, known by either of two numbers. Both are needed: HDF5 gives one file a new number each
/// time that it opens it anew, and a driver need not tell the descriptor.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileKey {
    /// What HDF5 tells as the number of the open file.
    pub number: Option<u64>,
    /// What the file system tells of its descriptor.
    pub identity: Option<Identity>,
}

/// An object of a file, however often it is open.
#[derive(Clone, Copy, Debug)]
pub struct ObjectKey {
    /// Its file.
    pub file: FileKey,
    /// HDF5's token of the object in its file.
    pub token: [u8; 16],
}

/// Elements of a dataset: a range along each dimension that holds all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Region {
    /// All elements.
    Everything,
    /// One range of indices for each dimension.
    Box(Vec<Range<u64>>),
}

/// What is done with elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// They are read.
    Read,
    /// They are written.
    Write,
}

/// What is read or written.
#[derive(Clone, Debug)]
pub enum AccessSet {
    /// Some elements of a dataset.
    Elements {
        /// The dataset.
        dataset: ObjectKey,
        /// Its elements.
        region: Region,
        /// What is done with them.
        access: Access,
    },
    /// An object as a whole, such as closing it.
    Object(ObjectKey),
    /// All of a file, such as flushing it.
    File(FileKey),
    /// Files that are read, of which datasets is not told: the sources of a virtual dataset, and
    /// external files.
    Sources(Vec<FileKey>),
    /// Any file.
    All(Access),
}

impl FileKey {
    /// Whether both are one file, as far as either number tells.
    pub fn is_same(&self, other: &FileKey) -> bool {
        let same = |one: Option<u64>, other: Option<u64>| one.is_some() && one == other;
        same(self.number, other.number)
            || (self.identity.is_some() && self.identity == other.identity)
    }
}

impl ObjectKey {
    /// Whether both are one object.
    pub fn is_same(&self, other: &ObjectKey) -> bool {
        self.token == other.token && self.file.is_same(&other.file)
    }
}

impl Region {
    /// From the first element along each dimension to the last; everything if these are not known.
    pub fn between(bounds: Option<(Vec<u64>, Vec<u64>)>) -> Region {
        let Some((low, high)) = bounds else {
            return Region::Everything;
        };
        let ends = low.into_iter().zip(high);
        Region::Box(
            ends.map(|(low, high)| low..high.saturating_add(1))
                .collect(),
        )
    }

    /// The region made of whole chunks.
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

    /// The region made of whole blocks. A block of another number of dimensions is one of the dataset
    /// seen as one row.
    #[must_use]
    pub fn of_blocks(self, block: &[u64]) -> Region {
        match self {
            Region::Box(ranges) if ranges.len() == block.len() => {
                Region::Box(ranges).of_chunks(block)
            }
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
    fn access(&self) -> Access {
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

    fn object(&self) -> Option<&ObjectKey> {
        match self {
            AccessSet::Elements { dataset, .. } | AccessSet::Object(dataset) => Some(dataset),
            AccessSet::File(_) | AccessSet::Sources(_) | AccessSet::All(_) => None,
        }
    }

    fn region(&self) -> Option<&Region> {
        match self {
            AccessSet::Elements { region, .. } => Some(region),
            _ => None,
        }
    }

    /// With whole blocks of the elements, where some of each are written back as they were.
    #[must_use]
    pub fn of_blocks(self, block: &[u64]) -> AccessSet {
        match self {
            AccessSet::Elements {
                dataset,
                region,
                access,
            } => AccessSet::Elements {
                dataset,
                region: region.of_blocks(block),
                access,
            },
            other => other,
        }
    }

    /// What HDF5 touches when it carries such a transfer out itself. When it writes, its buffers reach
    /// further than what is selected: it may write elements beside that as it has found them before. Nor
    /// does it read any of a dataset that has neither storage yet nor a fill value.
    #[must_use]
    pub fn by_hdf5(self) -> AccessSet {
        match self {
            AccessSet::Elements {
                dataset,
                access: Access::Write,
                ..
            } => AccessSet::Object(dataset),
            AccessSet::Elements {
                dataset, access, ..
            } => AccessSet::Elements {
                dataset,
                region: Region::Everything,
                access,
            },
            other => other,
        }
    }

    /// Whether it is elements of one dataset.
    pub fn is_elements(&self) -> bool {
        matches!(self, AccessSet::Elements { .. })
    }

    /// Whether it lies in this file, as far as that is told.
    pub fn is_in(&self, file: &FileKey) -> bool {
        matches!(self, AccessSet::All(_)) || self.files().iter().any(|own| own.is_same(file))
    }

    /// Whether two operations do not give the same in either order.
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
