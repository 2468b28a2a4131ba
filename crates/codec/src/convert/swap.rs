//! Byte order.

/// Copies, with the bytes of each unit in reverse. Bytes behind the last whole unit stay out.
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

/// Without a branch in the loop, so that it becomes vector shuffles.
fn units<const UNIT: usize>(source: &[u8], target: &mut [u8]) {
    let pairs = source.as_chunks::<UNIT>().0.iter();
    for (from, to) in pairs.zip(target.as_chunks_mut::<UNIT>().0) {
        let mut unit = *from;
        unit.reverse();
        *to = unit;
    }
}

/// The same in place.
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
