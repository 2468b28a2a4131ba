//! `gds`: cuFile moves all bytes, or the transfer fails.

use std::path::Path;
use std::time::Instant;

use penstock_engine::Extent;
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::File;
use penstock_engine::memory::{Memory, MemoryKind};
use penstock_engine::options::{Options, RouteName};
use penstock_engine::request::{self, Order};

use crate::transfer::{Transfer, Way};
use crate::{Mode, Side};

/// Moves ranges by one request of the engine with the route `gds`.
#[derive(Debug)]
pub(crate) struct Gds;

impl Mode for Gds {
    fn name(&self) -> &'static str {
        "gds"
    }

    fn check(&self, path: &Path, extents: &[Extent]) -> Result<()> {
        for extent in extents {
            if Memory::at(extent.memory)?.kind == MemoryKind::Managed {
                return Err(
                    Error::new(Kind::Unavailable, "cuFile does not take managed memory")
                        .remedy("use memory from cudaMalloc, or mode=auto")
                        .at(path, extent.offset, extent.length),
                );
            }
        }
        Ok(())
    }

    unsafe fn run(&self, transfer: &Transfer<'_>, _: Side, extents: &[Extent]) -> Result<()> {
        if extents.is_empty() {
            return Ok(());
        }
        let since = Instant::now();
        let options = Options {
            route: Some(RouteName::Gds),
            ..transfer.options
        };
        let order = Order::new(transfer.operation, extents, options);
        // SAFETY: upheld by the caller.
        let report = unsafe { request::run(transfer.file, order) }.map_err(|error| {
            // The mode determined the route.
            let remedy = error.remedy_text().replace("route=auto", "mode=auto");
            error.remedy(remedy)
        })?;
        (transfer.record)(Way::Engine(&report), report.bytes(), since);
        Ok(())
    }

    /// Does nothing: the request has made its bytes durable.
    fn sync(&self, _: &File, _: &Options) -> Result<()> {
        Ok(())
    }
}
