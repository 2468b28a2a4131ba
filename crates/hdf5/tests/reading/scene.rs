//! Reads into memory with a frame around it.

use std::path::Path;
use std::time::Duration;

use penstock_array::Holes;
use penstock_array::execute::{PreparedTransfer, SubmitOptions, submit};
use penstock_engine::allocate;
use penstock_engine::error::Result;
use penstock_engine::file::position::Operation;
use penstock_engine::options::Options;
use penstock_engine::report::Report;
use penstock_engine::request::{Request, StreamOrder};
use penstock_hdf5::dataset::DatasetInfo;
use penstock_hdf5::transfer::{DatasetTransfer, FileSelection, HostBuffer, MemoryShape, prepare};
use penstock_sys::hdf5::{H5F_ACC_RDONLY, H5S_ALL, H5S_SELECT_SET, hid_t};

use crate::common::{Locked, Setting};
use crate::has_gpu;

/// What untouched memory holds.
pub const FRAME: u8 = 0xA5;
const MARGIN: usize = 4096;
/// A request that takes longer hangs.
pub const LIMIT: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Host,
    Device,
}

/// Memory of `length` bytes with a margin on both sides.
pub struct Memory {
    place: Place,
    start: usize,
    length: usize,
}

impl Memory {
    pub fn new(place: Place, length: usize) -> Memory {
        let all = length + 2 * MARGIN;
        let start = match place {
            Place::Host => Box::into_raw(vec![FRAME; all].into_boxed_slice()).cast::<u8>() as usize,
            Place::Device => allocate::device_alloc(0, all as u64).unwrap() as usize,
        };
        let memory = Memory {
            place,
            start,
            length,
        };
        memory.clear();
        memory
    }

    /// As it was at first.
    pub fn clear(&self) {
        let frame = vec![FRAME; self.length + 2 * MARGIN];
        // SAFETY: both are that long.
        unsafe {
            allocate::copy(self.start, frame.as_ptr() as usize, frame.len() as u64).unwrap();
        }
    }

    pub fn address(&self) -> usize {
        self.start + MARGIN
    }

    fn host(&self, offset: i64) -> *mut u8 {
        match self.place {
            Place::Host => (self.address() as i64 + offset) as *mut u8,
            Place::Device => std::ptr::null_mut(),
        }
    }

    /// What it holds; the margins must be as they were.
    pub fn bytes(&self) -> Vec<u8> {
        let mut all = vec![0; self.length + 2 * MARGIN];
        // SAFETY: both are that long.
        unsafe {
            allocate::copy(all.as_mut_ptr() as usize, self.start, all.len() as u64).unwrap();
        }
        let behind = all.split_off(MARGIN + self.length);
        let bytes = all.split_off(MARGIN);
        assert!(
            all.iter().chain(&behind).all(|byte| *byte == FRAME),
            "bytes outside the destination were written"
        );
        bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let all = self.length + 2 * MARGIN;
        match self.place {
            // SAFETY: made by `new` with this length.
            Place::Host => drop(unsafe {
                Box::from_raw(std::ptr::slice_from_raw_parts_mut(
                    self.start as *mut u8,
                    all,
                ))
            }),
            // SAFETY: made by `new`; requests are waited for.
            Place::Device => unsafe { allocate::device_free(self.start as u64).unwrap() },
        }
    }
}

/// What of a dataset is read and how it lies in memory.
pub struct Wanted<'a> {
    pub file: &'a Path,
    pub name: &'a str,
    pub shape: &'a [u64],
    pub strides: Option<&'a [i64]>,
    /// Byte of the memory that the first element gets.
    pub first: i64,
    pub select: Select<'a>,
}

pub enum Select<'a> {
    All,
    /// Coordinates of single elements.
    Points(&'a [u64]),
    /// Start and count of a box.
    Box(&'a [u64], &'a [u64]),
}

impl<'a> Wanted<'a> {
    pub fn all(file: &'a Path, name: &'a str, shape: &'a [u64]) -> Wanted<'a> {
        Wanted {
            file,
            name,
            shape,
            strides: None,
            first: 0,
            select: Select::All,
        }
    }

    fn space(&self, setting: &Setting, dataset: hid_t) -> hid_t {
        let hdf5 = &setting.hdf5;
        if matches!(self.select, Select::All) {
            return H5S_ALL;
        }
        // SAFETY: the dataset is open; the lists are as long as the dataset has dimensions.
        unsafe {
            let space = (hdf5.H5Dget_space)(dataset);
            let rank = (hdf5.H5Sget_simple_extent_ndims)(space) as usize;
            let status = match self.select {
                Select::Points(points) => {
                    let count = points.len() / rank;
                    (hdf5.H5Sselect_elements)(space, H5S_SELECT_SET, count, points.as_ptr())
                }
                Select::Box(start, count) => (hdf5.H5Sselect_hyperslab)(
                    space,
                    H5S_SELECT_SET,
                    start.as_ptr(),
                    std::ptr::null(),
                    count.as_ptr(),
                    std::ptr::null(),
                ),
                Select::All => 0,
            };
            assert!(status >= 0);
            space
        }
    }

    pub fn prepare(
        &self,
        locked: &Locked,
        memory: &Memory,
        options: &str,
    ) -> Result<PreparedTransfer> {
        let setting = locked.setting;
        let opened = setting.open_with(self.file, self.name, H5F_ACC_RDONLY);
        // SAFETY: the dataset is open, and the caller holds the lock.
        let memory_type = unsafe { (setting.hdf5.H5Dget_type)(opened.dataset) };
        let space = self.space(setting, opened.dataset);
        let transfer = DatasetTransfer {
            operation: Operation::Read,
            dataset: opened.dataset,
            memory_type,
            decode: None,
            shape: MemoryShape::Array {
                shape: self.shape,
                strides: self.strides,
            },
            file_selection: FileSelection::Space(space),
            transfer_list: 0,
            options: Options::parse(options).unwrap(),
            file: None,
        };
        // SAFETY: the caller holds the lock; the memory is as long as the array.
        let prepared = unsafe {
            let session = setting.session();
            DatasetInfo::read(&session, transfer.dataset).and_then(|info| {
                let host = HostBuffer::new(memory.host(self.first), Holes::Leave);
                prepare(&session, &transfer, info, host, &|| ())
            })
        };
        // SAFETY: both are ours to close; H5S_ALL is not closed by a failing call.
        unsafe {
            if space != H5S_ALL {
                (setting.hdf5.H5Sclose)(space);
            }
            (setting.hdf5.H5Tclose)(memory_type);
        }
        prepared
    }

    /// Starts a read; the memory must outlive it.
    pub fn start(
        &self,
        locked: &Locked,
        memory: &Memory,
        options: &str,
        stream: Option<StreamOrder>,
    ) -> Result<Request> {
        let prepared = self.prepare(locked, memory, options)?;
        start(prepared, memory, self.first, options, stream)
    }

    pub fn read(&self, locked: &Locked, memory: &Memory, options: &str) -> Result<Report> {
        finish(&self.start(locked, memory, options, None)?)
    }
}

pub fn start(
    prepared: PreparedTransfer,
    memory: &Memory,
    first: i64,
    options: &str,
    stream: Option<StreamOrder>,
) -> Result<Request> {
    let with = SubmitOptions {
        options: Options::parse(options).unwrap(),
        stream,
        background: true,
        ..SubmitOptions::default()
    };
    // SAFETY: tests wait for their requests before they drop the memory.
    unsafe {
        submit(
            prepared,
            (memory.address() as i64 + first) as usize,
            None,
            with,
        )
    }
}

/// Waits for the outcome, not for ever.
pub fn finish(request: &Request) -> Result<Report> {
    let outcome = request.wait(Some(LIMIT)).finished();
    outcome.expect("the request hangs")?;
    Ok(request.report().unwrap())
}

/// Places and options on which the path depends: the CPU or the GPU decodes, with one worker or several.
pub fn ways() -> Vec<(Place, &'static str)> {
    let mut ways = vec![(Place::Host, "threads=3")];
    if has_gpu() {
        ways.extend([
            (Place::Device, "decode=cpu;threads=3"),
            (Place::Device, "decode=gpu;threads=3"),
            (Place::Device, "decode=gpu;threads=1;scratch=1MiB"),
        ]);
    }
    ways
}
