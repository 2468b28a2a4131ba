//! The C interface of Penstock. `include/penstock.h` documents the functions; the comments here add
//! only what the header omits.
//!
//! Each function checks its arguments: an unknown handle or an unexpected null pointer is an error. A
//! panic becomes `PENSTOCK_ERR_INTERNAL` and never unwinds into C.

#![deny(unreachable_pub, rustdoc::broken_intra_doc_links)]

mod connector;
mod copied;
mod dataset;
mod driver;
mod encoded;
mod error;
mod file;
mod handle;
mod in_use;
mod library;
mod lists;
mod many;
mod memory;
mod options;
mod place;
mod reader;
mod report;
mod request;
mod selection;
mod stored;
mod structs;
mod transfer;
