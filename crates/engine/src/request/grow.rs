//! Room for a direct write beyond the end of the file.
//!
//! It is allocated, and the file made as long as it will be, before the first worker writes: a
//! file system serialises direct writes that extend a file. A write that fails takes the length
//! back.

use crate::error::Result;
use crate::file::File;
use crate::plan::Plan;

/// By how much a file was made longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grown {
    from: u64,
    to: u64,
}

/// Allocates what the plans write beyond the end of the file, and not the gaps between.
pub(super) fn grow<'a>(
    file: &File,
    plans: impl Iterator<Item = &'a Plan>,
) -> Result<Option<Grown>> {
    let size = file.size()?;
    let mut beyond: Vec<(u64, u64)> = plans
        .flat_map(Plan::extents)
        .filter(|e| e.end() > size)
        .map(|e| (e.offset.max(size), e.end()))
        .collect();
    beyond.sort_unstable();
    let Some(&(_, to)) = beyond.last() else {
        return Ok(None);
    };
    for (start, end) in joined(&beyond) {
        if !file.allocate(start, end - start)? {
            return Ok(None);
        }
    }
    Ok(Some(Grown { from: size, to }))
}

/// Gives back what [`grow`] added, unless somebody else changed the length since.
pub(super) fn shrink(file: &File, grown: Grown) {
    if file.size().is_ok_and(|size| size == grown.to) {
        // The failure of the write is what the caller gets to see.
        let _ = file.truncate(grown.from);
    }
}

/// Sorted ranges that do not overlap, with neighbours made one.
fn joined(ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
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
