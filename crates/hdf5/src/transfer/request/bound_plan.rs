//! Binds a plan to the files that have the elements.

use std::sync::Arc;

use penstock_array::Plan;
use penstock_array::execute::{BoundPlan, PlanFile};
use penstock_codec::convert::TypeConversion;
use penstock_engine::file::side::Direct;
use penstock_engine::options::{Choice, Options};

/// Binds a plan to files. `options` decide whether the transfer bypasses the page cache.
pub(in crate::transfer) fn bound(
    plan: impl Into<Arc<Plan>>,
    files: Vec<PlanFile>,
    conversion: TypeConversion,
    options: &Options,
) -> BoundPlan {
    let direct = match options.direct.unwrap_or(Choice::Auto) {
        Choice::No => Direct::Never,
        Choice::Yes => Direct::Always,
        Choice::Auto => Direct::WhereCold,
    };
    BoundPlan::new(plan, files, conversion, direct)
}
