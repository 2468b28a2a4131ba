//! A stand-in for `libcuda.so.1`, `libcufile.so.0` and nvCOMP on a machine without a GPU, and for
//! `libcudart.so.13` as far as PyTorch needs it ([`runtime`]).
//!
//! It is a test double and never shipped. It is at least as strict as the real libraries, so that a
//! program that works on it is likely to work on a GPU:
//!
//! - Device memory is a sparse memory file that is mapped twice. Device pointers belong to the
//!   mapping without access, so a CPU that dereferences one faults; copies use the other mapping.
//! - New device memory reads as [`memory::POISON`] bytes, never as zeros.
//! - A stream is a queue with its own thread. Copies to and from pinned memory access the host side
//!   when they execute, so a buffer that is reused too early yields wrong bytes.
//! - Freeing or unregistering memory of a queued copy fails that copy, and with it the context.
//!   Calls in a failed context still release their resources, so that leaks can be counted.
//! - A device can have several contexts. They share its memory; an asynchronous failure in one fails
//!   all of them. Only the end of the last one clears the failure.
//! - Kernels run as C++, thread by thread, on the stream's thread. An illegal or misaligned access
//!   fails the context.
//! - With `CUDASIM_BLOCKING=1`, calls that wait on a GPU until their context is idle do so here too,
//!   and block the other calls of the context ([`config`]).
//! - [`failure`] can make any call fail.
//! - Legacy entry points with 32-bit device pointers exist, but always fail.
//!
//! [`config`] lists the environment variables that configure it.

// The driver API has CamelCase names.
#![allow(non_snake_case)]

pub mod api;
pub mod config;
pub mod cufile;
pub mod failure;
pub mod memory;
pub mod nvcomp;
pub mod runtime;
pub mod status;

mod arena;
mod capture;
mod copy;
mod device;
mod event;
mod handle;
mod kernel;
mod module;
mod pointer;
mod region;
mod stream;
