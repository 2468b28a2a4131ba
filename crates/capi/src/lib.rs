//! The C surface of Penstock. `include/penstock.h` documents every function; the comments here
//! say only what is not there.
//!
//! Each function is total: a handle that is not known, or a null pointer that may not be null, is an
//! error, and a panic ends as `PENSTOCK_ERR_INTERNAL` instead of crossing into C.

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
