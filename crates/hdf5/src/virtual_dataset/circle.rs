//! Detects virtual datasets that refer to each other without end, for which HDF5 exhausts its
//! stack.

use std::collections::HashSet;
use std::path::Path;

use penstock_engine::error::{Error, Kind};

use crate::dataset::{Layout, VirtualMapping};
use crate::open_files::Identity;

use super::files::numbered;
use super::limits::DEEPEST;
use super::sources::{Sources, VirtualDataset};

/// Largest number of names that are tried for a mapping with a running number.
const MOST_NUMBERS: u64 = 1 << 16;

/// Returns an error if the dataset refers to itself, whichever elements it takes from itself.
/// Called before a read is left to HDF5.
pub(super) fn refuse(sources: &mut Sources<'_>, place: &VirtualDataset) -> Result<(), Error> {
    let mut walk = Walk {
        sources,
        chain: Vec::new(),
        done: HashSet::new(),
    };
    walk.visit(place)
}

/// Returns the error that names the datasets of the chain.
pub(super) fn error<'a>(
    is_circle: bool,
    chain: impl Iterator<Item = &'a str>,
    place: &VirtualDataset,
) -> Error {
    let how = if is_circle {
        "in a circle".to_owned()
    } else {
        format!("more than {DEEPEST} deep")
    };
    let chain: Vec<&str> = chain.collect();
    let cause = format!(
        "virtual datasets refer to each other {how}: {}",
        chain.join(" -> ")
    );
    Error::new(Kind::Io, cause).at(&place.info.file.name, 0, 0)
}

struct Walk<'a, 's> {
    sources: &'a mut Sources<'s>,
    chain: Vec<(Identity, String)>,
    done: HashSet<(Identity, String)>,
}

impl Walk<'_, '_> {
    fn visit(&mut self, place: &VirtualDataset) -> Result<(), Error> {
        let link = (place.identity, place.info.name.clone());
        let is_circle = self.chain.contains(&link);
        if self.done.contains(&link) {
            return Ok(());
        }
        self.chain.push(link.clone());
        if is_circle || self.chain.len() > DEEPEST {
            let names = self.chain.iter().map(|link| link.1.as_str());
            return Err(error(is_circle, names, place));
        }
        if let Layout::Virtual(mappings) = &place.info.layout {
            let mut seen = HashSet::new();
            for mapping in mappings {
                if seen.insert((&mapping.file, &mapping.dataset)) {
                    self.follow(place, mapping)?;
                }
            }
        }
        self.chain.pop();
        self.done.insert(link);
        Ok(())
    }

    fn follow(&mut self, place: &VirtualDataset, mapping: &VirtualMapping) -> Result<(), Error> {
        let dataset = Path::new(&mapping.dataset);
        for number in 0..MOST_NUMBERS {
            let (file, in_file) = numbered(mapping.file.as_os_str(), number);
            let (name, in_name) = numbered(dataset.as_os_str(), number);
            match self.sources.find_virtual(place, &file, &name) {
                Some(Some(next)) => self.visit(&next)?,
                Some(None) => {}
                // The first number without a dataset ends the series.
                None => break,
            }
            if !in_file && !in_name {
                break;
            }
        }
        Ok(())
    }
}
