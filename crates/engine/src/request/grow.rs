//! Allocates room for a direct write beyond the end of the file.
//!
//! A file system serialises direct writes that extend a file. So the blocks are allocated, and the
//! file gets its final length, before the first worker writes. A write that fails undoes neither:
//! another process may write to the file in the meantime, and no system call shortens a file, or
//! frees its blocks, only where no other process has written.

use std::io;

use crate::error::{Error, Result};
use crate::file::File;
use crate::file::room::Room;
use crate::plan::{Extent, Plan};

/// Allocates the blocks that the plans write beyond the end of the file, without the gaps between
/// them. Where the file system cannot allocate beforehand, each write extends the file. A single
/// write beyond the end also extends the file itself if there is room.
///
/// # Errors
/// ENOSPC if the file system has too little space; the length of the file is then as before.
pub(super) fn grow<'a>(file: &File, plans: impl Iterator<Item = &'a Plan>) -> Result<()> {
    let size = file.size()?;
    let beyond = beyond(plans.flat_map(Plan::extents), size);
    let ranges = joined(&beyond);
    let Some(&(last, end)) = ranges.last() else {
        return Ok(());
    };
    // A single call extends the file itself, in less time than an allocation takes.
    if let [(start, end)] = beyond[..]
        && file.surely_takes(start, end)
    {
        return Ok(());
    }
    match file.room_for(&ranges) {
        Room::Enough => {}
        Room::Unknown => return Ok(()),
        Room::Lacking => {
            let error = io::Error::from_raw_os_error(libc::ENOSPC);
            return Err(Error::os(&error, "cannot allocate room in the file").at(
                file.path(),
                ranges[0].0,
                end - ranges[0].0,
            ));
        }
    }
    for (start, end) in &ranges {
        if !file.allocate(*start, end - start, false)? {
            return Ok(());
        }
    }
    // All blocks are allocated, so this does not fail half-way for lack of space.
    file.allocate(last, end - last, true).map(drop)
}

/// The parts of extents beyond an offset, in the order of the file.
pub(super) fn beyond<'a>(
    extents: impl Iterator<Item = &'a Extent>,
    offset: u64,
) -> Vec<(u64, u64)> {
    let mut beyond: Vec<(u64, u64)> = extents
        .filter(|e| e.end() > offset)
        .map(|e| (e.offset.max(offset), e.end()))
        .collect();
    beyond.sort_unstable();
    beyond
}

/// Joins adjacent ranges. They are sorted and do not overlap.
pub(super) fn joined(ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for &(start, end) in ranges {
        match joined.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => joined.push((start, end)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_allocated_together_and_gaps_not_at_all() {
        let ranges = [(0, 10), (10, 20), (30, 40)];
        assert_eq!(joined(&ranges), [(0, 20), (30, 40)]);
    }
}
