//! Starts a transfer between one dataset and the caller's memory.

use penstock_array::execute::{SubmitOptions, submit};
use penstock_engine::error::Result;
use penstock_engine::file::position::Operation;
use penstock_sys::hdf5::Hdf5;

use super::handle::TransferHandle;
use super::ordered_plan::prepare_in_order;
use crate::dataset::pointers;
use crate::library::Session;
use crate::transfer::conflicts::{self, number_of_file};
use crate::transfer::hdf5_state::{drop_at_close, inside};
use crate::transfer::request::{Buffer, DatasetTransfer, HostBuffer};

/// Starts a transfer between a dataset and the caller's memory, after those with which it
/// conflicts.
///
/// # Safety
/// The buffer stays valid as the transfer describes it, and the dataset open, until the request has
/// finished. This thread and those that run submitter steps may call HDF5; if it is not
/// thread-safe, they hold the lock that guards it.
pub unsafe fn start(
    hdf5: &'static Hdf5,
    transfer: &DatasetTransfer<'_>,
    buffer: Buffer,
    with: SubmitOptions,
) -> Result<TransferHandle> {
    inside(hdf5, || {
        // SAFETY: the caller may call HDF5, and no other thread calls it meanwhile.
        let session = unsafe { Session::begin(hdf5) };
        if buffer.memory.context.is_some() {
            // SAFETY: as above.
            unsafe { pointers::refuse(hdf5, transfer.memory_type)? };
        }
        // HDF5 may access host memory during planning, unless the transfer follows a stream.
        let is_after = with.stream.is_some_and(|order| order.after);
        let host = if buffer.memory.context.is_none() && !is_after {
            buffer.address as *mut u8
        } else {
            std::ptr::null_mut()
        };
        let host = HostBuffer::new(host, with.holes);
        // SAFETY: upheld by the caller.
        let (prepared, sets) = unsafe { prepare_in_order(&session, transfer, host)? };
        let writes_to = match transfer.operation {
            Operation::Write if !sets.is_empty() => {
                Some(number_of_file(&session, transfer.dataset)?)
            }
            Operation::Read | Operation::Write => None,
        };
        let memory = (prepared.low == 0).then_some(buffer.memory);
        // SAFETY: upheld by the caller.
        let request = unsafe { submit(prepared, buffer.address, memory, with)? };
        if writes_to.is_some() {
            drop_at_close(hdf5, &[conflicts::forget]);
        }
        Ok(TransferHandle::new(request, hdf5, writes_to).entered(sets))
    })
}
