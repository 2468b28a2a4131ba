//! The C interface of Penstock. `include/penstock.h` and `include/penstock_hdf5.h` document the
//! functions and what their callers must guarantee. SAFETY comments call these guarantees the
//! contract; comments on a function add only what the headers omit.
//!
//! Each function checks its arguments: an unknown handle or an unexpected null pointer is an error. A
//! panic becomes `PENSTOCK_ERR_INTERNAL` and never unwinds into C.

#![deny(unreachable_pub, rustdoc::broken_intra_doc_links)]

/// Defines two functions with the same arguments, one that reads and one that writes. `operation`
/// is the direction in their common body. Writes only read the caller's buffer, although Rust
/// declares it as mutable.
macro_rules! read_and_write {
    (fn $read:ident, $write:ident($operation:ident, $($name:ident: $type:ty),* $(,)?) $body:block) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $read($($name: $type),*) -> std::ffi::c_int {
            let $operation = penstock_engine::file::position::Operation::Read;
            $body
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $write($($name: $type),*) -> std::ffi::c_int {
            let $operation = penstock_engine::file::position::Operation::Write;
            $body
        }
    };
}

mod arguments;
mod array;
mod connector;
mod copied;
mod dataset;
mod decoding;
mod driver;
mod encoded;
mod error;
mod file;
mod handle;
mod in_use;
mod library;
mod many;
mod memory;
mod options;
mod place;
mod plugin;
mod reader;
mod replacement;
mod report;
mod request;
mod selection;
mod stored;
mod structs;
mod transfer;
