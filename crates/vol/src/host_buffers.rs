//! Host memory that replaces GPU memory in calls that only HDF5 can carry out.

use std::ffi::c_void;
use std::ops::Range;
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;

use penstock_array::execute::{
    Beforehand, BoundPlan, InMemory, PreparedTransfer, SubmitOptions, TransferKind, submit,
};
use penstock_array::{
    ElementMapping, MemorySize, Plan, Selection, Source, StoredArray, match_selections,
};
use penstock_engine::Stream;
use penstock_engine::copy::copy;
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::report::Path;
use penstock_engine::request::StreamOrder;
use penstock_sys::hdf5::hid_t;

use super::calling_library::CallingLibrary;
use penstock_hdf5::dataset::pointers;

/// The buffers of a call, with host memory in place of GPU memory.
pub(crate) struct HostBuffers {
    buffers: Vec<CallBuffer>,
}

/// One buffer of a call.
struct CallBuffer {
    /// Address of the application's buffer.
    address: usize,
    /// `None` if the buffer is in host memory.
    copy: Option<HostCopy>,
}

/// A copy of a part of a buffer.
struct HostCopy {
    /// The offset of the part in the buffer.
    start: usize,
    bytes: Vec<u8>,
    elements: Option<ElementsApart>,
}

/// The bytes of GPU memory that a call touches.
pub(crate) struct Touched {
    /// Range from the first to the last byte, as offsets in the buffer.
    pub(crate) range: Range<u64>,
    /// The elements of a read, if there are bytes between them. The call must not change these
    /// bytes, which other transfers may fill at the same time.
    pub(crate) elements: Option<ElementsApart>,
}

/// Elements in memory with bytes between them.
pub(crate) struct ElementsApart {
    /// The selection of a C array that begins with the first touched byte.
    pub(crate) selection: Selection,
    pub(crate) shape: Vec<u64>,
    /// The size of an element.
    pub(crate) element: MemorySize,
}

impl HostBuffers {
    /// Copies the touched bytes of GPU memory to host memory. `touched` returns them for the buffer
    /// with an index, and `None` for a buffer in host memory, which HDF5 uses directly. A read also
    /// copies, because it may leave some bytes of an element unchanged.
    ///
    /// # Safety
    /// The buffers have the bytes that `touched` returns.
    pub(crate) unsafe fn of(
        buffers: &[usize],
        touched: impl Fn(usize) -> Result<Option<Touched>>,
    ) -> Result<HostBuffers> {
        let buffer = |(at, address): (usize, &usize)| {
            let address = *address;
            let copy = match touched(at)? {
                None => None,
                // SAFETY: the caller guarantees this.
                Some(touched) => Some(unsafe { HostCopy::of(address, touched)? }),
            };
            Ok(CallBuffer { address, copy })
        };
        let buffers = buffers.iter().enumerate().map(buffer);
        Ok(HostBuffers {
            buffers: buffers.collect::<Result<_>>()?,
        })
    }

    /// Returns the addresses for HDF5: the address of the first byte of each buffer, even if that
    /// byte is not in the copy.
    pub(crate) fn addresses(&mut self) -> Vec<*mut c_void> {
        let address = |buffer: &mut CallBuffer| match &mut buffer.copy {
            Some(copy) => copy.bytes.as_mut_ptr().wrapping_sub(copy.start).cast(),
            None => buffer.address as *mut c_void,
        };
        self.buffers.iter_mut().map(address).collect()
    }

    /// Copies what HDF5 has read to the GPU.
    ///
    /// # Safety
    /// As for [`HostBuffers::of`].
    pub(crate) unsafe fn copy_back(self) -> Result<()> {
        for buffer in self.buffers {
            if let Some(HostCopy {
                start,
                bytes,
                elements,
            }) = buffer.copy
            {
                let address = buffer.address.wrapping_add(start);
                // SAFETY: the caller guarantees this.
                unsafe {
                    match elements {
                        None => copy(address, bytes.as_ptr() as usize, bytes.len())?,
                        Some(elements) => elements.place(address, bytes)?,
                    }
                }
            }
        }
        Ok(())
    }
}

impl HostCopy {
    /// # Safety
    /// As for [`HostBuffers::of`].
    unsafe fn of(address: usize, touched: Touched) -> Result<HostCopy> {
        let Touched { range, elements } = touched;
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let (start, length) = (
            size(range.start),
            size(range.end.saturating_sub(range.start)),
        );
        let mut bytes: Vec<u8> = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| {
            let text = format!("no host memory for {length} bytes that HDF5 transfers for the GPU");
            Error::new(Kind::Memory, text)
        })?;
        bytes.resize(length, 0);
        let from = address.wrapping_add(start);
        // SAFETY: the caller guarantees this; `bytes` is as long.
        unsafe { copy(bytes.as_mut_ptr() as usize, from, length)? };
        Ok(HostCopy {
            start,
            bytes,
            elements,
        })
    }
}

impl ElementsApart {
    /// Copies the elements from `bytes`, the touched bytes, to the same offsets from `address` on.
    ///
    /// # Safety
    /// As for [`HostBuffers::of`].
    unsafe fn place(&self, address: usize, bytes: Vec<u8>) -> Result<()> {
        let (own, shape) = (&self.selection, &self.shape);
        let (selection, layout) = match_selections(own, shape, own, shape, self.element)?;
        let array = StoredArray::new("", shape, self.element.as_stored(), Source::Memory);
        let mapping = ElementMapping::whole(self.element);
        let plan = Plan::new(&array, selection, &layout, mapping, Operation::Read)?;
        // No byte past the touched ones is part of a selected element.
        let source = InMemory {
            bytes: Arc::new(bytes),
            path: Path::Hdf5,
        };
        let prepared = PreparedTransfer {
            length: layout.length,
            kind: TransferKind::Read(vec![BoundPlan::in_memory(plan, Some(source))]),
            direction: Operation::Read,
            low: 0,
            path: PathBuf::new(),
            beforehand: Beforehand::default(),
        };
        let with = SubmitOptions {
            stream: Some(StreamOrder {
                // SAFETY: null is the default stream.
                stream: unsafe { Stream::from_raw(ptr::null_mut()) },
                after: true,
                before: false,
            }),
            ..SubmitOptions::default()
        };
        // SAFETY: the caller guarantees the elements in memory.
        unsafe { submit(prepared, address, None, with)? }.finish()
    }
}

/// Returns an error if elements of this type contain pointers, see [`pointers::refuse`].
///
/// # Safety
/// The thread is inside a call of `library`, which checks the identifier.
pub(crate) unsafe fn refuse_pointers(library: CallingLibrary, memory_type: hid_t) -> Result<()> {
    // SAFETY: the caller guarantees this.
    library.keeping_errors(|| unsafe { pointers::refuse(library.hdf5, memory_type) })
}
