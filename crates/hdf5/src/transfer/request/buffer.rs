//! The caller's memory of a transfer.

use penstock_array::Holes;
use penstock_engine::error::Result;
use penstock_engine::memory::Memory;

/// The caller's memory.
pub struct Buffer {
    /// Address.
    pub address: usize,
    /// The kind of memory there, as the CUDA driver reports it.
    pub memory: Memory,
}

impl Buffer {
    /// Makes a buffer at an address, whose kind of memory the CUDA driver reports.
    pub fn at(address: usize) -> Result<Buffer> {
        let memory = Memory::at(address)?;
        Ok(Buffer { address, memory })
    }
}

/// The caller's buffer, for access by HDF5 while a transfer is planned.
#[derive(Clone, Copy, Debug)]
pub struct HostBuffer {
    /// Its address if it is in host memory and, for a write, has its final contents; else null.
    address: *mut u8,
    /// What a read does with elements that were never written.
    pub(in crate::transfer) holes: Holes,
}

impl HostBuffer {
    /// Describes a buffer; `address` is null if HDF5 must not access it.
    pub fn new(address: *mut u8, holes: Holes) -> HostBuffer {
        HostBuffer { address, holes }
    }

    pub(in crate::transfer) fn address(&self) -> Option<*mut u8> {
        (!self.address.is_null()).then_some(self.address)
    }
}
