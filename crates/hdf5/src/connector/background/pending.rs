//! Which operations are pending, and which of them another one has to wait for.

use std::ops::Range;

/// A file that is open, by the numbers of its HDF5: the copy's slot and what H5Fget_fileno tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileKey {
    pub slot: usize,
    pub number: u64,
}

/// An object of a file, however often it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectKey {
    pub file: FileKey,
    pub token: [u8; 16],
}

/// Elements of a dataset: a range along each dimension that holds all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Region {
    Everything,
    Box(Vec<Range<u64>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

/// What an operation touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Some elements of a dataset.
    Elements {
        dataset: ObjectKey,
        region: Region,
        access: Access,
    },
    /// An object as a whole, such as closing it.
    Object(ObjectKey),
    /// All of a file.
    File(FileKey),
    /// Nobody knows: what is read may come from any file.
    All,
}

impl Region {
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

    fn overlaps(&self, other: &Region) -> bool {
        let (Region::Box(one), Region::Box(other)) = (self, other) else {
            return true;
        };
        let apart = |(a, b): (&Range<u64>, &Range<u64>)| a.end <= b.start || b.end <= a.start;
        one.len() != other.len() || !one.iter().zip(other).any(apart)
    }
}

impl Claim {
    fn file(&self) -> Option<FileKey> {
        match self {
            Claim::Elements { dataset, .. } | Claim::Object(dataset) => Some(dataset.file),
            Claim::File(file) => Some(*file),
            Claim::All => None,
        }
    }

    fn object(&self) -> Option<&ObjectKey> {
        match self {
            Claim::Elements { dataset, .. } | Claim::Object(dataset) => Some(dataset),
            Claim::File(_) | Claim::All => None,
        }
    }

    /// The claim with its region made of whole blocks. A block of another number of dimensions is one of
    /// the dataset seen as one row.
    #[must_use]
    pub fn of_blocks(self, block: &[u64]) -> Claim {
        match self {
            Claim::Elements {
                dataset,
                region,
                access,
            } => {
                let region = match region {
                    Region::Box(ranges) if ranges.len() == block.len() => {
                        Region::Box(ranges).of_chunks(block)
                    }
                    _ => Region::Everything,
                };
                Claim::Elements {
                    dataset,
                    region,
                    access,
                }
            }
            other => other,
        }
    }

    pub fn is_elements(&self) -> bool {
        matches!(self, Claim::Elements { .. })
    }

    /// Whether two operations do not give the same in either order.
    pub fn conflicts(&self, other: &Claim) -> bool {
        use Access::Read;
        if let (
            Claim::Elements {
                dataset,
                region,
                access,
            },
            Claim::Elements {
                dataset: other_dataset,
                region: other_region,
                access: other_access,
            },
        ) = (self, other)
        {
            let both_read = *access == Read && *other_access == Read;
            return dataset == other_dataset && !both_read && region.overlaps(other_region);
        }
        match (self.object(), other.object()) {
            (Some(one), Some(other)) => one == other,
            _ => match (self.file(), other.file()) {
                (Some(one), Some(other)) => one == other,
                _ => true,
            },
        }
    }
}

/// Operations that have not been seen to be finished, in the order of their submission.
#[derive(Debug)]
pub struct Pending<T> {
    entries: Vec<(u64, Claim, T)>,
    next: u64,
}

impl<T: Clone> Pending<T> {
    pub const fn new() -> Pending<T> {
        Pending {
            entries: Vec::new(),
            next: 0,
        }
    }

    /// Adds an operation. The number given back tells it from all others.
    pub fn enter(&mut self, claim: Claim, operation: T) -> u64 {
        let number = self.next;
        self.next += 1;
        self.entries.push((number, claim, operation));
        number
    }

    pub fn leave(&mut self, number: u64) -> Option<T> {
        let at = self.entries.binary_search_by_key(&number, |entry| entry.0);
        at.ok().map(|at| self.entries.remove(at).2)
    }

    /// Those that have to be finished before an operation with this claim begins.
    pub fn before(&self, claim: &Claim) -> Vec<T> {
        self.before_or(claim, |_| false)
    }

    /// Those as well of which `also` says so.
    pub fn before_or(&self, claim: &Claim, also: impl Fn(&T) -> bool) -> Vec<T> {
        let is_before = |entry: &&(u64, Claim, T)| entry.1.conflicts(claim) || also(&entry.2);
        let entries = self.entries.iter().filter(is_before);
        entries.map(|entry| entry.2.clone()).collect()
    }

    /// The oldest ones.
    pub fn oldest(&self, most: usize) -> Vec<T> {
        let entries = self.entries.iter().take(most);
        entries.map(|entry| entry.2.clone()).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests;
