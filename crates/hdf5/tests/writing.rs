//! What Penstock writes, against what HDF5 itself writes into a copy of the same file.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::ptr;

use common::{Setting, lock};
use penstock_array::Holes;
use penstock_array::execute::{SubmitOptions, submit};
use penstock_engine::allocate;
use penstock_engine::file::position::Operation;
use penstock_engine::options::Options;
use penstock_engine::report::{self, Report};
use penstock_hdf5::dataset::DatasetInfo;
use penstock_hdf5::transfer::{DatasetTransfer, FileSelection, HostBuffer, MemoryShape, prepare};
use penstock_sys::hdf5::{
    H5F_ACC_RDONLY, H5F_ACC_RDWR, H5P_DEFAULT, H5S_ALL, H5S_SELECT_SET, hid_t,
};

/// Which elements of a dataset are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chosen {
    All,
    /// Every second index.
    Strided,
    Box,
    /// Some of them twice: the last value counts.
    Points,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lies {
    Dense,
    /// With gaps, and each dimension backwards.
    Apart,
    OnGpu,
    OnGpuApart,
}

impl Lies {
    fn is_apart(self) -> bool {
        matches!(self, Lies::Apart | Lies::OnGpuApart)
    }

    fn is_on_gpu(self) -> bool {
        matches!(self, Lies::OnGpu | Lies::OnGpuApart)
    }
}

fn places() -> Vec<Lies> {
    if !allocate::device_count().is_ok_and(|count| count > 0) {
        eprintln!("skipped for GPU memory: no CUDA driver; run under scripts/standin-gpu");
        return vec![Lies::Dense, Lies::Apart];
    }
    vec![Lies::Dense, Lies::Apart, Lies::OnGpu, Lies::OnGpuApart]
}

/// The dataspace with selected elements, and the shape of the result.
fn choose(setting: &Setting, dataset: hid_t, chosen: Chosen) -> Option<(hid_t, Vec<u64>)> {
    let hdf5 = &setting.hdf5;
    let mut shape = vec![0u64; 32];
    // SAFETY: there is room for all dimensions that a dataspace can have.
    let space = unsafe {
        let space = (hdf5.H5Dget_space)(dataset);
        let rank = (hdf5.H5Sget_simple_extent_dims)(space, shape.as_mut_ptr(), ptr::null_mut());
        shape.truncate(rank as usize);
        space
    };
    if chosen == Chosen::All {
        return Some((space, shape));
    }
    if shape.is_empty() || shape.contains(&0) {
        return None;
    }
    let rank = shape.len();
    let (start, stride, count): (Vec<u64>, u64, Vec<u64>) = match chosen {
        Chosen::Strided => (
            vec![0; rank],
            2,
            shape.iter().map(|n| n.div_ceil(2)).collect(),
        ),
        _ => (
            shape.iter().map(|n| n / 3).collect(),
            1,
            shape.iter().map(|n| (n / 2).max(1)).collect(),
        ),
    };
    let strides = vec![stride; rank];
    let points: Vec<u64> = [3u64, 50, 7, 3, 1000, 50, 12]
        .iter()
        .flat_map(|p| {
            shape
                .iter()
                .enumerate()
                .map(move |(d, n)| (p * 7 + p / 3 * d as u64) % n)
        })
        .collect();
    // SAFETY: all lists are as long as the dataset has dimensions, that of points seven times.
    let status = unsafe {
        match chosen {
            Chosen::Points => (hdf5.H5Sselect_elements)(space, H5S_SELECT_SET, 7, points.as_ptr()),
            _ => (hdf5.H5Sselect_hyperslab)(
                space,
                H5S_SELECT_SET,
                start.as_ptr(),
                strides.as_ptr(),
                count.as_ptr(),
                ptr::null(),
            ),
        }
    };
    assert!(status >= 0);
    let shape = if chosen == Chosen::Points {
        vec![7]
    } else {
        count
    };
    Some((space, shape))
}

/// Elements in memory of either kind.
struct Memory {
    host: Vec<u8>,
    gpu: Option<u64>,
    /// Offset of the first element.
    first: usize,
    strides: Vec<i64>,
}

impl Memory {
    fn new(elements: &[u8], size: usize, shape: &[u64], is_apart: bool, on_gpu: bool) -> Memory {
        let (mut strides, mut row) = (vec![0i64; shape.len()], size as i64);
        for (stride, n) in strides.iter_mut().zip(shape).rev() {
            if is_apart {
                row *= 2;
            }
            *stride = if is_apart { -row } else { row };
            row *= (*n).max(1) as i64;
        }
        let reach = |stride: &i64, n: &u64| stride.abs() * (*n as i64 - 1).max(0);
        let length: i64 = strides.iter().zip(shape).map(|(s, n)| reach(s, n)).sum();
        let first = if is_apart { length } else { 0 };
        let mut host = vec![0xEE; length as usize + size];
        for (at, element) in elements.chunks_exact(size).enumerate() {
            let (mut left, mut place) = (at as u64, first);
            for (stride, n) in strides.iter().zip(shape).rev() {
                place += stride * (left % n) as i64;
                left /= n;
            }
            host[place as usize..][..size].copy_from_slice(element);
        }
        let gpu = on_gpu.then(|| {
            let address = allocate::device_alloc(0, host.len() as u64).unwrap();
            // SAFETY: both are that long.
            unsafe {
                allocate::copy(address as usize, host.as_ptr() as usize, host.len() as u64)
                    .unwrap();
            }
            address
        });
        Memory {
            host,
            gpu,
            first: first as usize,
            strides,
        }
    }

    fn address(&self) -> usize {
        let start = self
            .gpu
            .map_or(self.host.as_ptr() as usize, |at| at as usize);
        start + self.first
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(address) = self.gpu {
            // SAFETY: made by `new`; requests are waited for.
            unsafe { allocate::device_free(address).unwrap() };
        }
    }
}

fn ours(
    setting: &'static Setting,
    file: &Path,
    name: &str,
    chosen: Chosen,
    lies: Lies,
    options: &str,
) -> Option<Report> {
    let opened = setting.open_with(file, name, H5F_ACC_RDWR);
    let (space, shape) = choose(setting, opened.dataset, chosen)?;
    // SAFETY: the dataset is open, and the caller holds the lock.
    let (element, size) = unsafe {
        let element = (setting.hdf5.H5Dget_type)(opened.dataset);
        (element, (setting.hdf5.H5Tget_size)(element))
    };
    let elements = values(setting, &shape, space, size);
    // Single elements lie one behind the other.
    let is_apart = lies.is_apart() && chosen != Chosen::Points;
    let memory = Memory::new(&elements, size, &shape, is_apart, lies.is_on_gpu());
    let strides = (chosen != Chosen::Points).then_some(memory.strides.as_slice());
    let transfer = DatasetTransfer {
        operation: Operation::Write,
        dataset: opened.dataset,
        memory_type: element,
        decode: None,
        shape: MemoryShape::Array {
            shape: &shape,
            strides,
        },
        file_selection: FileSelection::Space(space),
        transfer_list: 0,
        options: Options::parse(options).unwrap(),
        file: None,
    };
    let host = match memory.gpu {
        None => memory.address() as *mut u8,
        Some(_) => ptr::null_mut(),
    };
    // SAFETY: the caller holds the lock; the memory is as described, and outlives the request.
    let request = unsafe {
        let session = setting.session();
        let info = DatasetInfo::read(&session, transfer.dataset).unwrap();
        let prepared = prepare(
            &session,
            &transfer,
            info,
            HostBuffer::new(host, Holes::Leave),
            &|| (),
        )
        .unwrap();
        drop(session);
        let with = SubmitOptions {
            options: transfer.options,
            ..SubmitOptions::default()
        };
        submit(prepared, memory.address(), None, with).unwrap()
    };
    request.finish().unwrap();
    // SAFETY: both are ours to close.
    unsafe {
        (setting.hdf5.H5Sclose)(space);
        (setting.hdf5.H5Tclose)(element);
    }
    request.report()
}

/// A value for each element, all different as far as the size allows. No bit pattern of a number is
/// special, as nothing is converted.
fn values(setting: &Setting, shape: &[u64], space: hid_t, size: usize) -> Vec<u8> {
    // SAFETY: a dataspace of ours.
    let count = unsafe { (setting.hdf5.H5Sget_select_npoints)(space) } as usize;
    assert_eq!(
        count as u64,
        shape.iter().product::<u64>().min(count as u64)
    );
    (0..count * size)
        .map(|at| (at * 31 / size.min(7) + at * 7) as u8 & 0x3f)
        .collect()
}

fn theirs(setting: &Setting, file: &Path, name: &str, chosen: Chosen) {
    let opened = setting.open_with(file, name, H5F_ACC_RDWR);
    let Some((space, shape)) = choose(setting, opened.dataset, chosen) else {
        return;
    };
    let hdf5 = &setting.hdf5;
    // SAFETY: the dataset is open; the elements are those that are selected, one behind the other.
    unsafe {
        let element = (hdf5.H5Dget_type)(opened.dataset);
        let elements = values(setting, &shape, space, (hdf5.H5Tget_size)(element));
        let count = (hdf5.H5Sget_select_npoints)(space) as u64;
        let memory = (hdf5.H5Screate_simple)(1, &count, ptr::null());
        let buffer = elements.as_ptr().cast();
        let status = (hdf5.H5Dwrite)(opened.dataset, element, memory, space, H5P_DEFAULT, buffer);
        assert!(status >= 0, "{name} {chosen:?}");
        (hdf5.H5Sclose)(memory);
        (hdf5.H5Sclose)(space);
        (hdf5.H5Tclose)(element);
    }
}

/// All elements, as HDF5 reads them from the closed file.
fn contents(setting: &Setting, file: &Path, name: &str) -> Vec<u8> {
    let opened = setting.open_with(file, name, H5F_ACC_RDONLY);
    let hdf5 = &setting.hdf5;
    // SAFETY: the dataset is open; the buffer has room for all elements.
    unsafe {
        let element = (hdf5.H5Dget_type)(opened.dataset);
        let space = (hdf5.H5Dget_space)(opened.dataset);
        let count = (hdf5.H5Sget_select_npoints)(space).max(0) as usize;
        let mut bytes = vec![0u8; count * (hdf5.H5Tget_size)(element)];
        let buffer = bytes.as_mut_ptr().cast();
        let status = (hdf5.H5Dread)(
            opened.dataset,
            element,
            H5S_ALL,
            H5S_ALL,
            H5P_DEFAULT,
            buffer,
        );
        assert!(status >= 0, "{name} cannot be read");
        (hdf5.H5Sclose)(space);
        (hdf5.H5Tclose)(element);
        bytes
    }
}

fn copies(setting: &Setting, file: &str) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (
        folder.path().join("ours.h5"),
        folder.path().join("theirs.h5"),
    );
    fs::copy(setting.folder.join(file), &one).unwrap();
    fs::copy(setting.folder.join(file), &other).unwrap();
    (folder, one, other)
}

fn compare_all(kind: &str) {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    for (file, name) in setting.datasets(kind) {
        // The bytes of the one are pointers, those of the other are in files that copies share.
        if name.contains("vlen") || name == "external" {
            continue;
        }
        for chosen in [Chosen::All, Chosen::Strided, Chosen::Box, Chosen::Points] {
            let (_folder, one, other) = copies(setting, &file);
            theirs(setting, &other, &name, chosen);
            let expected = contents(setting, &other, &name);
            for lies in places() {
                fs::copy(setting.folder.join(&file), &one).unwrap();
                ours(setting, &one, &name, chosen, lies, "threads=2;scratch=1MiB");
                let found = contents(setting, &one, &name);
                assert!(found == expected, "{file} {name} {chosen:?} {lies:?}");
            }
        }
    }
}

#[test]
fn numbers_in_every_layout_and_index_are_written_as_by_hdf5() {
    compare_all("numbers");
}

#[test]
fn elements_of_every_type_are_written_as_by_hdf5() {
    compare_all("types");
}

#[test]
fn the_report_says_who_wrote_what() {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    let (_folder, file, _) = copies(setting, "indexes_latest.h5");
    let bytes = 23 * 17 * 4;
    let report = ours(setting, &file, "gzip", Chosen::All, Lies::Dense, "").unwrap();
    // 6 by 4 chunks of 4 by 5.
    assert_eq!((report.chunks, report.decoded_cpu), (24, 24 * 80));
    assert_eq!(report.bytes_by(report::Path::HostBuffered), bytes);
    assert!(report.stored > 0 && report.note.is_empty(), "{report:?}");

    let (_folder, file, _) = copies(setting, "layouts.h5");
    let report = ours(setting, &file, "compact", Chosen::All, Lies::Dense, "").unwrap();
    assert_eq!(report.bytes_by(report::Path::Hdf5), bytes);
    assert!(report.note.contains("compact"), "{report:?}");
}

#[test]
fn a_write_that_is_to_be_durable_is_in_the_file_when_it_returns() {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    let (_folder, file, twin) = copies(setting, "indexes_earliest.h5");
    let opened = setting.open_with(&file, "gzip", H5F_ACC_RDWR);
    ours(
        setting,
        &file,
        "gzip",
        Chosen::All,
        Lies::Dense,
        "durable=yes",
    );
    // The file is still open for writing, so what is looked at is what is on the medium.
    fs::copy(&file, &twin).unwrap();
    drop(opened);
    assert!(contents(setting, &twin, "gzip") == contents(setting, &file, "gzip"));
}

#[test]
fn a_dataset_that_is_open_for_reading_only_is_refused_in_hdf5s_words() {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    let path = setting.folder.join("indexes_latest.h5");
    let opened = setting.open_with(&path, "chunks", H5F_ACC_RDONLY);
    let elements = vec![0u8; 23 * 17 * 4];
    // SAFETY: the dataset is open, and the test holds the lock; the elements are as many as there are.
    let refused = unsafe {
        let memory_type = (setting.hdf5.H5Dget_type)(opened.dataset);
        let transfer = DatasetTransfer {
            operation: Operation::Write,
            dataset: opened.dataset,
            memory_type,
            decode: None,
            shape: MemoryShape::Space(H5S_ALL),
            file_selection: FileSelection::Space(H5S_ALL),
            transfer_list: 0,
            options: Options::default(),
            file: None,
        };
        let session = setting.session();
        let info = DatasetInfo::read(&session, transfer.dataset).unwrap();
        let refused = prepare(
            &session,
            &transfer,
            info,
            HostBuffer::new(elements.as_ptr().cast_mut(), Holes::Leave),
            &|| (),
        );
        drop(session);
        (setting.hdf5.H5Tclose)(memory_type);
        refused
    };
    let text = refused.err().unwrap().to_string();
    assert!(text.contains("write") && text.contains("chunks"), "{text}");
}

#[test]
fn hdf5_sees_at_once_what_was_written_past_it() {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("large.h5");
    setting.script_named("large.py", &[file.as_os_str()]);
    let opened = setting.open_with(&file, "contiguous", H5F_ACC_RDWR);
    let first = || {
        let mut value = 0u8;
        let hdf5 = &setting.hdf5;
        // SAFETY: one element of one byte is selected, and there is room for it.
        unsafe {
            let (element, space) = (
                (hdf5.H5Dget_type)(opened.dataset),
                (hdf5.H5Dget_space)(opened.dataset),
            );
            let one = 1;
            let memory = (hdf5.H5Screate_simple)(1, &one, ptr::null());
            (hdf5.H5Sselect_hyperslab)(space, H5S_SELECT_SET, &10, ptr::null(), &one, ptr::null());
            let status = (hdf5.H5Dread)(
                opened.dataset,
                element,
                memory,
                space,
                H5P_DEFAULT,
                (&raw mut value).cast(),
            );
            assert!(status >= 0);
            (hdf5.H5Sclose)(memory);
            (hdf5.H5Sclose)(space);
            (hdf5.H5Tclose)(element);
        }
        value
    };
    // Now HDF5 has the element in its sieve buffer.
    assert_eq!(first(), 99);
    for chosen in [Chosen::All, Chosen::Strided] {
        let report = ours(setting, &file, "contiguous", chosen, Lies::Apart, "").unwrap();
        assert!(report.note.is_empty(), "{report:?}");
    }
    assert_ne!(first(), 99);
}
