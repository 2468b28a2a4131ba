//! HDF5's own reading, and the plainest execution of a plan.

use std::fs;
use std::sync::Arc;

use penstock_array::{ChunkJob, FileRange, Plan, Source};
use penstock_codec::{Pipeline, Scratch};
use penstock_hdf5::dataset::DatasetInfo;
use penstock_sys::hdf5::{H5P_DEFAULT, hid_t};

use super::common::{Opened, Setting};

/// What HDF5 itself reads, in the dataset's own type; false if it refuses.
pub fn native_read(
    setting: &Setting,
    opened: &Opened<'_>,
    memory_space: hid_t,
    file_space: hid_t,
    memory: &mut [u8],
) -> bool {
    let hdf5 = &setting.hdf5;
    // SAFETY: the memory is as large as the selection needs.
    let status = unsafe {
        let element = (hdf5.H5Dget_type)(opened.dataset);
        let status = (hdf5.H5Dread)(
            opened.dataset,
            element,
            memory_space,
            file_space,
            H5P_DEFAULT,
            memory.as_mut_ptr().cast(),
        );
        (hdf5.H5Tclose)(element);
        status
    };
    status >= 0
}

fn decoded(info: &DatasetInfo, plan: &Plan, job: &ChunkJob, file: &[u8], given: &[u8]) -> Vec<u8> {
    let stored = |from: u64, length: u64| file[from as usize..][..length as usize].to_vec();
    match plan.source() {
        Source::Memory => given.to_vec(),
        Source::Segments(slots) => {
            let range = FileRange {
                offset: job.address,
                length: job.stored_size,
                memory: 0,
            };
            let mut bytes = vec![0; job.stored_size as usize];
            for (slot, part) in plan.segment_ranges(range) {
                let content = fs::read(&slots[slot].path).unwrap();
                let content = content.get(part.offset as usize..).unwrap_or(&[]);
                let length = content.len().min(part.length as usize);
                bytes[part.memory as usize..][..length].copy_from_slice(&content[..length]);
            }
            bytes
        }
        _ if job.is_plain => stored(job.address, job.stored_size),
        _ => {
            let mut output = vec![0; job.decoded_size as usize];
            let pipeline = Pipeline {
                filters: info.filters.clone(),
            };
            let bytes = stored(job.address, job.stored_size);
            pipeline
                .decode(job.mask, &bytes, &mut output, &mut Scratch::default())
                .unwrap();
            output
        }
    }
}

/// `file` is the dataset's file; `given` all elements where HDF5 has read them.
pub fn execute(info: &DatasetInfo, plan: &Arc<Plan>, file: &[u8], given: &[u8], memory: &mut [u8]) {
    let size = plan.file_element() as usize;
    for window in plan.windows(10_000) {
        let window = window.unwrap();
        for job in &window.jobs {
            let bytes = decoded(info, plan, job, file, given);
            for copy in job.boxes(plan).flat_map(|p| p.runs().collect::<Vec<_>>()) {
                let length = copy.elements as usize * size;
                memory[copy.memory as usize..][..length]
                    .copy_from_slice(&bytes[copy.chunk as usize..][..length]);
            }
        }
        for fill in &window.fills {
            for copy in fill.boxes(plan).flat_map(|p| p.runs().collect::<Vec<_>>()) {
                let length = copy.elements as usize * size;
                memory[copy.memory as usize..][..length]
                    .copy_from_slice(&plan.fill().unwrap().repeat(copy.elements as usize));
            }
        }
    }
}
