//! The treatment of elements that were never written, in a read.

use super::Plan;

/// What happens to the memory of elements that have neither stored bytes nor a fill value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holes {
    /// The memory stays as the caller has initialised it.
    #[default]
    Leave,
    /// The memory is filled with zeros, because it is new and holds bytes that the caller must not
    /// see.
    Zero,
}

impl Plan {
    /// Sets the treatment of elements that have neither stored bytes nor a fill value. Without this
    /// call, their memory stays unchanged.
    pub fn set_holes(&mut self, holes: Holes) {
        if holes == Holes::Zero && self.fill.is_none() {
            self.fill = Some(vec![0; self.file_element() as usize]);
        }
    }
}
