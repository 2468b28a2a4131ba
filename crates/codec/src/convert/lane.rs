//! Loops over the numbers of two byte slices.

/// The bytes of one number.
pub(super) trait Lane: Copy {
    fn split(bytes: &[u8]) -> &[Self];
    fn split_mut(bytes: &mut [u8]) -> &mut [Self];
}

impl<const N: usize> Lane for [u8; N] {
    fn split(bytes: &[u8]) -> &[[u8; N]] {
        bytes.as_chunks().0
    }
    fn split_mut(bytes: &mut [u8]) -> &mut [[u8; N]] {
        bytes.as_chunks_mut().0
    }
}

pub(super) fn each<S: Lane, T: Lane>(source: &[u8], target: &mut [u8], change: impl Fn(S) -> T) {
    for (from, to) in S::split(source).iter().zip(T::split_mut(target)) {
        *to = change(*from);
    }
}
