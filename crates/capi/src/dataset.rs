//! HDF5 datasets.

use std::ffi::{c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use penstock_array::execute::SubmitOptions;
use penstock_engine::Recover;
use penstock_engine::Stream;
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::request::StreamOrder;
use penstock_engine::{options_without_engine, refuse_fork};
use penstock_hdf5::dataset::creation_properties;
use penstock_hdf5::library::{Id, Session};
use penstock_hdf5::transfer::conflicts::Access;
use penstock_hdf5::transfer::{
    self, Buffer, DatasetTransfer, FileSelection, InCall, MemoryShape, TransferHandle, inside,
    make_durable, may_make_durable, wait_for_dataset, wait_for_file, wait_for_path,
};
use penstock_sys::add_library_folders;
use penstock_sys::hdf5::{Hdf5, hid_t};

use crate::arguments::{path_of, place_of, string_of};
use crate::array::{CArray, array_of};
use crate::copied::end_for_connector;
use crate::error::guard;
use crate::options::{self, COptions};
use crate::report::{self, CReport, check_size};
use crate::request::{AnyRequest, CRequest, SubmitArguments, operation_of, store, submit_options};

/// The HDF5 of this process, found by the first call.
struct Binding {
    module: Mutex<Option<PathBuf>>,
    hdf5: OnceLock<Result<Hdf5>>,
}

static BINDING: Binding = Binding {
    module: Mutex::new(None),
    hdf5: OnceLock::new(),
};

impl Binding {
    fn get(&'static self) -> Result<&'static Hdf5> {
        let found = self.hdf5.get_or_init(|| {
            let module = self.module.lock().recover();
            let hdf5 = match module.as_deref() {
                Some(module) => Hdf5::of_module(module),
                None => Hdf5::of_process(None),
            };
            hdf5.map_err(|absent| {
                Error::new(Kind::Unavailable, absent.to_string())
                    .remedy("load HDF5 1.14 or 2.x first, or name the module that uses it")
            })
        });
        found.as_ref().map_err(Error::clone)
    }

    fn bind(&self, module: Option<PathBuf>) -> Result<()> {
        let mut bound = self.module.lock().recover();
        if self.hdf5.get().is_some() && *bound != module {
            return Err(
                Error::invalid("this process already uses another HDF5 for datasets")
                    .remedy("call penstock_hdf5_bind before the first dataset is read or written"),
            );
        }
        *bound = module;
        Ok(())
    }
}

/// Returns the HDF5 to which the identifiers of this process belong.
pub(crate) fn hdf5_of_process() -> Result<&'static Hdf5> {
    BINDING.get()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_hdf5_bind(module: *const c_char) -> c_int {
    guard(|| {
        // SAFETY: by contract of this function.
        let module = (!module.is_null()).then(|| unsafe { path_of(module, "module") });
        BINDING.bind(module.transpose()?.map(Path::to_owned))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_nvcomp_path(path: *const c_char) -> c_int {
    guard(|| {
        // SAFETY: by contract of this function.
        let path = unsafe { path_of(path, "path")? };
        let folder = path.parent().ok_or_else(|| {
            Error::invalid(format!("{} is not the path of a library", path.display()))
        })?;
        add_library_folders(&[folder.to_owned()]);
        Ok(())
    })
}

/// Starts a transfer. Its report measures the time from `began`, planning included.
///
/// # Safety
/// The buffer is as the transfer describes it until the request is finished. The dataset is open. This
/// thread, and those that take submitter steps, hold HDF5's lock.
pub(crate) unsafe fn start(
    transfer: &DatasetTransfer<'_>,
    buffer: Buffer,
    with: SubmitOptions,
    began: Instant,
) -> Result<TransferHandle> {
    refuse_fork()?;
    let hdf5 = BINDING.get()?;
    // SAFETY: by contract of this function.
    unsafe {
        let request = transfer::start(hdf5, transfer, buffer, with)?;
        request.count_from(began);
        end_for_connector(hdf5, &request);
        Ok(request)
    }
}

/// Checks and converts the arguments of a transfer between an array and a selection of a dataset.
///
/// # Safety
/// As the header requires.
pub(crate) unsafe fn array_transfer<'a>(
    operation: Operation,
    dataset: hid_t,
    file_selection: FileSelection<'a>,
    array: *const CArray,
    submit: SubmitArguments,
) -> Result<(DatasetTransfer<'a>, Buffer, SubmitOptions)> {
    // SAFETY: by contract of this function.
    let (array, with) = unsafe { (array_of(array)?, submit_options(submit)?) };
    if array.decode.is_some() && operation == Operation::Write {
        return Err(Error::invalid("only a read decodes packed numbers"));
    }
    let transfer = DatasetTransfer {
        operation,
        dataset,
        memory_type: array.element,
        decode: array.decode,
        shape: MemoryShape::Array {
            shape: array.shape,
            strides: array.strides,
        },
        file_selection,
        transfer_list: 0,
        options: with.options,
        file: None,
    };
    Ok((transfer, Buffer::at(array.address)?, with))
}

read_and_write! {
    fn penstock_dataset_read_submit, penstock_dataset_write_submit(
        operation,
        dataset: hid_t,
        file_space: hid_t,
        array: *const CArray,
        options: *const COptions,
        stream: *mut c_void,
        flags: c_int,
        request: *mut *mut CRequest,
    ) {
        // SAFETY: by contract of this function.
        guard(|| unsafe {
            let began = Instant::now();
            let place = place_of(request, "request")?;
            let selected = FileSelection::Space(file_space);
            let submit = (options, stream, flags);
            let (transfer, buffer, with) =
                array_transfer(operation, dataset, selected, array, submit)?;
            let started = start(&transfer, buffer, with, began)?;
            store(place, AnyRequest::Dataset(started));
            Ok(())
        })
    }
}

read_and_write! {
    fn penstock_dataset_read, penstock_dataset_write(
        operation,
        dataset: hid_t,
        memory_type: hid_t,
        memory_space: hid_t,
        file_space: hid_t,
        transfer_plist: hid_t,
        buffer: *mut c_void,
        stream: *mut c_void,
        options: *const COptions,
        report: *mut CReport,
    ) {
        // SAFETY: by contract of this function.
        guard(|| unsafe {
            let began = Instant::now();
            check_size(report)?;
            let transfer = DatasetTransfer {
                operation,
                dataset,
                memory_type,
                decode: None,
                shape: MemoryShape::Space(memory_space),
                file_selection: FileSelection::Space(file_space),
                transfer_list: transfer_plist,
                options: options::read(options)?,
                file: None,
            };
            let buffer = Buffer::at(buffer as usize)?;
            // Host memory has no order relative to a stream.
            let is_on_gpu = buffer.memory.context.is_some();
            let with = SubmitOptions {
                options: transfer.options,
                stream: is_on_gpu.then(|| StreamOrder {
                    stream: Stream::from_raw(stream),
                    after: true,
                    before: false,
                }),
                ..SubmitOptions::default()
            };
            let request = start(&transfer, buffer, with, began)?;
            request.finish()?;
            report::write_of(report, &request);
            Ok(())
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_dataset_creation_list(dataset: hid_t, list: *mut hid_t) -> c_int {
    // SAFETY: by contract of this function; the caller holds HDF5's lock, if that has one.
    guard(|| unsafe {
        refuse_fork()?;
        let place = place_of(list, "list")?;
        let hdf5 = BINDING.get()?;
        *place = inside(hdf5, || {
            creation_properties(&Session::begin(hdf5), dataset).map(Id::keep)
        })?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_dataset_settle(dataset: hid_t, operation: c_int) -> c_int {
    guard(|| {
        refuse_fork()?;
        let access = match operation_of(operation)? {
            Operation::Read => Access::Read,
            Operation::Write => Access::Write,
        };
        // SAFETY: by contract, the caller holds HDF5's lock.
        unsafe { wait_for_dataset(BINDING.get()?, dataset, access) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_dataset_prepare_copy(dataset: hid_t) -> c_int {
    // SAFETY: by contract, the caller holds HDF5's lock.
    guard(|| unsafe { transfer::prepare_dataset_for_copy(BINDING.get()?, dataset) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_object_prepare_copy(
    location: hid_t,
    name: *const c_char,
    list: hid_t,
) -> c_int {
    // SAFETY: by contract of this function; the caller holds HDF5's lock.
    guard(|| unsafe {
        let name = string_of(name, "name")?;
        transfer::prepare_for_copy(BINDING.get()?, location, name, list)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_hdf5_settle(object: hid_t) -> c_int {
    guard(|| {
        refuse_fork()?;
        // SAFETY: by contract, the caller holds HDF5's lock.
        unsafe { wait_for_file(BINDING.get()?, object) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_hdf5_settle_path(path: *const c_char) -> c_int {
    // SAFETY: by contract of this function; the caller holds HDF5's lock.
    guard(|| unsafe {
        refuse_fork()?;
        let path = path_of(path, "path")?;
        // Pending transfers imply that HDF5 has been found.
        if !transfer::nothing_is_pending() {
            wait_for_path(BINDING.get()?, path);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_hdf5_sync(object: hid_t, options: *const COptions) -> c_int {
    // SAFETY: by contract of this function; the caller holds HDF5's lock.
    guard(|| unsafe {
        // A forked child also flushes what it writes.
        if options_without_engine(options::read(options)?)?.durable != Some(true) {
            return Ok(());
        }
        match object {
            0 => may_make_durable(),
            _ => make_durable(BINDING.get()?, object),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn penstock_hdf5_begin_call() {
    std::mem::forget(InCall::begin());
}

#[unsafe(no_mangle)]
extern "C" fn penstock_hdf5_end_call() {
    InCall::end_forgotten();
}

#[unsafe(no_mangle)]
extern "C" fn penstock_hdf5_is_settled() -> c_int {
    c_int::from(transfer::nothing_is_pending())
}

#[unsafe(no_mangle)]
extern "C" fn penstock_hdf5_unsettled() -> *const u64 {
    transfer::unresolved_count()
}
