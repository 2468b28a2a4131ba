//! Reads: workers take jobs from a work queue and carry each from the file to its destination.

pub(super) mod device;
mod host_read;
mod queue;

pub(super) use device::DeviceRead;
pub(super) use host_read::{HostRead, HostReader, WorkerBuffers};
