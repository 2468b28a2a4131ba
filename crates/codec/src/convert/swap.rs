//! Byte swapping.

/// Bytes that are swapped at a time, before or after their conversion; they stay in the L1 cache.
pub(super) const PORTION: usize = 4096;

/// Copies each unit with its bytes reversed. Bytes after the last whole unit are not copied.
pub(super) fn run(unit: usize, source: &[u8], target: &mut [u8]) {
    match unit {
        2 => units::<2>(source, target),
        4 => units::<4>(source, target),
        8 => units::<8>(source, target),
        16 => units::<16>(source, target),
        _ => {
            let unit = unit.max(1);
            for (from, to) in source.chunks_exact(unit).zip(target.chunks_exact_mut(unit)) {
                to.copy_from_slice(from);
                to.reverse();
            }
        }
    }
}

/// The loop has no branch, so that it compiles to vector shuffles.
fn units<const UNIT: usize>(source: &[u8], target: &mut [u8]) {
    let pairs = source.as_chunks::<UNIT>().0.iter();
    for (from, to) in pairs.zip(target.as_chunks_mut::<UNIT>().0) {
        let mut unit = *from;
        unit.reverse();
        *to = unit;
    }
}

/// Reverses the bytes of each unit in place.
pub(super) fn in_place(unit: usize, bytes: &mut [u8]) {
    match unit {
        2 => units_in_place::<2>(bytes),
        4 => units_in_place::<4>(bytes),
        _ => units_in_place::<8>(bytes),
    }
}

fn units_in_place<const UNIT: usize>(bytes: &mut [u8]) {
    for unit in bytes.as_chunks_mut::<UNIT>().0 {
        unit.reverse();
    }
}
