//! Whole reads, into host and GPU memory: of damaged files, on a GPU that fails, many at a time.

#[path = "../common/mod.rs"]
mod common;
mod damage;
mod failures;
#[path = "../../../engine/tests/common/process.rs"]
mod process;
mod recipe;
#[path = "../../../engine/tests/common/repetitions.rs"]
mod repetitions;
mod scene;
mod shapes;
#[path = "../../../engine/tests/common/standin.rs"]
#[allow(dead_code, reason = "the engine's tests use the rest")]
mod standin;
mod together;

use std::sync::OnceLock;

use penstock_engine::allocate;

/// Whether there is a GPU, real or stand-in; prints once if there is none.
fn has_gpu() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let there = allocate::device_count().is_ok_and(|count| count > 0);
        if !there {
            eprintln!("skipped for GPU memory: no CUDA driver; run under scripts/standin-gpu");
        }
        there
    })
}
