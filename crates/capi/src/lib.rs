//! The C interface of Penstock. `include/penstock.h` documents each function, so the comments here
//! add only what the header does not say.
//!
//! Each function checks its arguments: an unknown handle and an unexpected null pointer are errors. A
//! panic becomes `PENSTOCK_ERR_INTERNAL` and never crosses into C.

#![deny(unreachable_pub, rustdoc::broken_intra_doc_links)]

mod connector;
mod dataset;
mod driver;
mod error;
mod file;
mod handle;
mod lent;
mod library;
mod memory;
mod options;
mod report;
mod request;
mod structs;
mod transfer;
