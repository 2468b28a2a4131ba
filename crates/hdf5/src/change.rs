//! What happens to elements between file and memory.

use penstock_codec::convert::Change;

use crate::element::ElementType;
use crate::plan::Item;

pub fn between(file: &ElementType, memory: &ElementType) -> Result<(Item, Change), String> {
    if file == memory && file.only_hdf5().is_none() {
        return Ok((Item::whole(file.size() as u64), Change::Copy));
    }
    Err("the elements are converted".to_owned())
}
