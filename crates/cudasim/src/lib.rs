//! A stand-in for `libcuda.so.1`, `libcufile.so.0` and nvCOMP on a machine without a GPU.
//!
//! It is a test double and never shipped. It is as strict as the real libraries or stricter, so
//! that a program that works on it has little left to get wrong on a GPU:
//!
//! - Device memory is a sparse memory file mapped twice. Its device pointer is the mapping without
//!   any access, so a CPU that touches it faults; copies go through the other mapping.
//! - New device memory reads as [`memory::POISON`] bytes, never as zeros.
//! - A stream is a queue served by its own thread. Copies to and from pinned memory touch the host
//!   side when they execute, so a buffer that is reused too early shows as wrong bytes.
//! - Memory that is freed or unregistered under a queued copy fails that copy, and with it the
//!   context. Calls that release something still release it then, so that leaks can be counted.
//! - Kernels run as C++, thread by thread on the stream's thread. One that touches memory which it
//!   must not, or a misaligned address, fails the context.
//! - Any call can be told to fail, see [`failure`].
//! - Legacy entry points with 32-bit device pointers exist, and refuse to work.
//!
//! The environment that steers it is described in [`config`].

// The names of the driver API.
#![allow(non_snake_case)]

pub mod api;
pub mod config;
pub mod cufile;
pub mod failure;
pub mod memory;
pub mod nvcomp;
pub mod status;

mod arena;
mod capture;
mod copy;
mod device;
mod event;
mod handle;
mod module;
mod pointer;
mod region;
mod stream;
mod twin;
