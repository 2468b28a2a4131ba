//! What a read does where no element was ever written.

use super::Plan;

/// What a read does with the memory of elements that have neither stored bytes nor a fill value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holes {
    /// Leaves it as it is, as the caller has initialised it.
    #[default]
    Leave,
    /// Fills it with zeros: the memory is new, and holds bytes that the caller must not see.
    Zero,
}

impl Plan {
    /// Decides what a read does with elements that have neither stored bytes nor a fill value. Without this
    /// call their memory is left as it is.
    pub fn set_holes(&mut self, holes: Holes) {
        if holes == Holes::Zero && self.fill.is_none() {
            self.fill = Some(vec![0; self.file_element() as usize]);
        }
    }
}
