//! Reading: jobs come out of a work queue, and workers carry each from the file to its place.

pub(super) mod device;
mod host_read;
mod queue;

pub(super) use device::DeviceRead;
pub(super) use host_read::HostRead;
