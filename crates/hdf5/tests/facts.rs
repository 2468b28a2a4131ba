//! A transfer queries once what a dataset is and what memory a buffer is, and passes it on.

mod common;
#[path = "../../engine/tests/common/standin.rs"]
#[allow(dead_code, reason = "the engine's tests use the rest")]
mod standin;

use std::ffi::c_void;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use penstock_array::execute::SubmitOptions;
use penstock_engine::allocate;
use penstock_engine::file::position::Operation;
use penstock_engine::memory::Memory;
use penstock_engine::options::Options;
use penstock_hdf5::transfer::{self, Buffer, DatasetTransfer, FileSelection, MemoryShape};
use penstock_sys::hdf5::{H5F_ACC_RDONLY, H5F_ACC_RDWR, H5S_ALL, Hdf5, haddr_t, hid_t};

use common::{Locked, lock};
use standin::standin;

type OffsetOf = unsafe extern "C" fn(hid_t) -> haddr_t;

static REAL: OnceLock<OffsetOf> = OnceLock::new();
static DESCRIBED: AtomicU64 = AtomicU64::new(0);

/// A description of a dataset takes the offset of its storage, and nothing else in these tests does.
unsafe extern "C" fn counted(dataset: hid_t) -> haddr_t {
    DESCRIBED.fetch_add(1, Ordering::Relaxed);
    let real = REAL
        .get()
        .expect("it was put aside before this function took its place");
    // SAFETY: the arguments of this function.
    unsafe { real(dataset) }
}

/// The table of the tests' HDF5 that counts descriptions.
fn counting(locked: &Locked) -> &'static Hdf5 {
    static TABLE: Mutex<Option<&'static Hdf5>> = Mutex::new(None);
    let mut table = TABLE.lock().unwrap();
    table.get_or_insert_with(|| {
        let mut made = Hdf5::of_process(Some(&locked.setting.library)).unwrap();
        REAL.get_or_init(|| made.H5Dget_offset);
        made.H5Dget_offset = counted;
        Box::leak(Box::new(made))
    })
}

fn has_gpu() -> bool {
    allocate::device_count().is_ok_and(|count| count > 0)
}

/// Carries out one transfer of all of a dataset, and gives how often it was described meanwhile.
fn descriptions(
    locked: &Locked,
    file: &Path,
    name: &str,
    operation: Operation,
    memory: usize,
) -> u64 {
    let flags = match operation {
        Operation::Read => H5F_ACC_RDONLY,
        Operation::Write => H5F_ACC_RDWR,
    };
    let opened = locked.setting.open_with(file, name, flags);
    let hdf5 = counting(locked);
    // SAFETY: the dataset is open, and the test holds the lock.
    let memory_type = unsafe { (hdf5.H5Dget_type)(opened.dataset) };
    let transfer = DatasetTransfer {
        operation,
        dataset: opened.dataset,
        memory_type,
        decode: None,
        shape: MemoryShape::Space(H5S_ALL),
        file_selection: FileSelection::Space(H5S_ALL),
        transfer_list: 0,
        options: Options::default(),
        file: None,
    };
    let buffer = Buffer::at(memory).unwrap();
    let before = DESCRIBED.load(Ordering::Relaxed);
    // SAFETY: the test holds the lock; the memory is as long as the dataset, and outlives the request.
    unsafe {
        let request = transfer::start(hdf5, &transfer, buffer, SubmitOptions::default()).unwrap();
        request.finish().unwrap();
        (hdf5.H5Tclose)(memory_type);
    }
    DESCRIBED.load(Ordering::Relaxed) - before
}

/// A file of our own with a contiguous and a chunked dataset of 1000 x 1000 32-bit numbers.
fn made(locked: &Locked, folder: &Path) -> std::path::PathBuf {
    let path = folder.join("facts.h5");
    locked.setting.script_named("facts.py", &[path.as_os_str()]);
    path
}

const BYTES: usize = 4_000_000;

#[test]
fn a_dataset_is_described_once_a_transfer() {
    let Some(locked) = lock() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = made(&locked, folder.path());
    let mut memory = vec![0u8; BYTES];
    let address = memory.as_mut_ptr().cast::<c_void>() as usize;
    for name in ["contiguous", "chunked", "gzip"] {
        for operation in [Operation::Read, Operation::Write] {
            let found = descriptions(&locked, &path, name, operation, address);
            assert_eq!(found, 1, "{name}, {operation:?}");
        }
    }
}

#[test]
fn a_buffer_is_classified_once_a_transfer() {
    let Some(locked) = lock() else { return };
    let Some(standin) = standin() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = made(&locked, folder.path());
    let memory = allocate::device_alloc(0, BYTES as u64).unwrap() as usize;
    let before = standin.calls(c"pointer");
    Memory::at(memory).unwrap();
    let once = standin.calls(c"pointer") - before;
    for name in ["contiguous", "chunked", "gzip"] {
        for operation in [Operation::Read, Operation::Write] {
            let before = standin.calls(c"pointer");
            descriptions(&locked, &path, name, operation, memory);
            let calls = standin.calls(c"pointer") - before;
            assert_eq!(calls, once, "{name}, {operation:?}");
        }
    }
    // SAFETY: all requests are finished.
    unsafe { allocate::device_free(memory as u64).unwrap() };
}
