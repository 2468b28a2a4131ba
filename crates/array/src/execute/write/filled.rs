//! A chunk with its new elements, which gathering passes on.

/// A decoded chunk with all its new elements.
pub(crate) struct Filled<'a> {
    pub bytes: &'a [u8],
    /// Whether the bytes are in the caller's memory, which stays valid until the request has
    /// finished.
    pub stays: bool,
}
