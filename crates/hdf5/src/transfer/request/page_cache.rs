//! The option that decides whether transfers bypass the page cache.

use penstock_engine::file::side::Direct;
use penstock_engine::options::{Choice, Options};

/// Returns whether a transfer with these options bypasses the page cache.
pub(in crate::transfer) fn direct(options: &Options) -> Direct {
    match options.direct.unwrap_or(Choice::Auto) {
        Choice::No => Direct::Never,
        Choice::Yes => Direct::Always,
        Choice::Auto => Direct::WhereCold,
    }
}
