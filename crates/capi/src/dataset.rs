//! HDF5 datasets.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use penstock_array::execute::SubmitOptions;
use penstock_engine::Recover;
use penstock_engine::Stream;
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::memory::Memory;
use penstock_engine::request::StreamOrder;
use penstock_engine::{options_without_engine, refuse_fork};
use penstock_hdf5::dataset::creation_properties;
use penstock_hdf5::library::{Id, Session};
use penstock_hdf5::transfer::conflicts::Access;
use penstock_hdf5::transfer::{
    self, Buffer, DatasetTransfer, FileSelection, InCall, MemoryShape, inside, make_durable,
    may_make_durable, wait_for_dataset, wait_for_file, wait_for_path,
};
use penstock_sys::add_library_folders;
use penstock_sys::hdf5::{H5S_MAX_RANK, Hdf5, hid_t};

use crate::copied::end_for_connector;
use crate::error::{OK, guard, null};
use crate::file::path_of;
use crate::options::{self, COptions};
use crate::report::{self, CReport, check_size};
use crate::request::{self as requests, AnyRequest, CRequest};

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

/// # Safety
/// `module` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_hdf5_bind(module: *const c_char) -> c_int {
    guard(|| {
        let module = (!module.is_null()).then(|| {
            // SAFETY: the caller gives a C string.
            let path = unsafe { CStr::from_ptr(module) };
            PathBuf::from(OsStr::from_bytes(path.to_bytes()))
        });
        BINDING.bind(module).map(|()| OK)
    })
}

/// # Safety
/// `path` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_nvcomp_path(path: *const c_char) -> c_int {
    guard(|| {
        if path.is_null() {
            return Err(null("path"));
        }
        // SAFETY: the caller gives a C string.
        let path = unsafe { CStr::from_ptr(path) };
        let path = PathBuf::from(OsStr::from_bytes(path.to_bytes()));
        let folder = path.parent().ok_or_else(|| {
            Error::invalid(format!("{} is not the path of a library", path.display()))
        })?;
        add_library_folders(&[folder.to_owned()]);
        Ok(OK)
    })
}

#[repr(C)]
pub(crate) struct CArray {
    struct_size: usize,
    pub(crate) data: *mut c_void,
    pub(crate) element: hid_t,
    rank: i32,
    reserved: i32,
    shape: *const u64,
    strides: *const i64,
}

/// # Safety
/// `array` is null or as the header requires.
pub(crate) unsafe fn array_of<'a>(array: *const CArray) -> Result<(&'a CArray, MemoryShape<'a>)> {
    // SAFETY: by contract of this function.
    let array = unsafe { array.as_ref() }.ok_or_else(|| null("array"))?;
    if array.struct_size < size_of::<CArray>() {
        return Err(Error::invalid(format!(
            "struct_size of penstock_array is {}",
            array.struct_size
        ))
        .remedy("initialise arrays with PENSTOCK_ARRAY_INIT"));
    }
    let rank = usize::try_from(array.rank).unwrap_or(usize::MAX);
    if rank > 2 * H5S_MAX_RANK {
        return Err(Error::invalid(format!(
            "the rank of an array is {}, but must be between 0 and {}",
            array.rank,
            2 * H5S_MAX_RANK
        )));
    }
    if rank == 0 {
        let shape = MemoryShape::Array {
            shape: &[],
            strides: None,
        };
        return Ok((array, shape));
    }
    if array.shape.is_null() {
        return Err(null("shape"));
    }
    // SAFETY: by contract, each pointer that is not null is to `rank` numbers.
    let (shape, strides) = unsafe {
        (
            std::slice::from_raw_parts(array.shape, rank),
            (!array.strides.is_null()).then(|| std::slice::from_raw_parts(array.strides, rank)),
        )
    };
    Ok((array, MemoryShape::Array { shape, strides }))
}

/// Starts a transfer. Its report measures the time from `began`, planning included.
///
/// # Safety
/// The buffer is as the transfer describes it until the request is finished. The dataset is open. This
/// thread, and those that take submitter steps, hold HDF5's lock.
unsafe fn start(
    transfer: &DatasetTransfer<'_>,
    buffer: Buffer,
    with: SubmitOptions,
    began: Instant,
) -> Result<transfer::TransferHandle> {
    refuse_fork()?;
    let hdf5 = BINDING.get()?;
    // SAFETY: passed on.
    let request = unsafe { transfer::start(hdf5, transfer, buffer, with)? };
    request.count_from(began);
    // SAFETY: this thread holds HDF5's lock.
    unsafe { end_for_connector(hdf5, &request) };
    Ok(request)
}

/// Arguments shared by the functions with an array.
pub(crate) struct ArrayCall {
    pub(crate) dataset: hid_t,
    array: *const CArray,
    options: *const COptions,
    stream: *mut c_void,
    flags: c_int,
}

impl ArrayCall {
    pub(crate) fn new(
        dataset: hid_t,
        array: *const CArray,
        options: *const COptions,
        stream: *mut c_void,
        flags: c_int,
    ) -> ArrayCall {
        ArrayCall {
            dataset,
            array,
            options,
            stream,
            flags,
        }
    }
}

impl ArrayCall {
    /// Checks and converts the arguments.
    ///
    /// # Safety
    /// As the header requires of the functions with an array.
    pub(crate) unsafe fn read<'a>(
        &self,
        operation: Operation,
        selected: FileSelection<'a>,
    ) -> Result<(DatasetTransfer<'a>, Buffer, SubmitOptions)> {
        // SAFETY: by contract of this function.
        unsafe {
            let (array, shape) = array_of(self.array)?;
            let transfer = DatasetTransfer {
                operation,
                dataset: self.dataset,
                memory_type: array.element,
                shape,
                file_selection: selected,
                transfer_list: 0,
                options: options::read(self.options)?,
                file: None,
            };
            let with = requests::submit_options(transfer.options, self.stream, self.flags)?;
            Ok((transfer, Buffer::at(array.data as usize)?, with))
        }
    }
}

/// Starts a transfer between an array and a selection of a dataset.
///
/// # Safety
/// As the header requires of the functions with an array.
pub(crate) unsafe fn start_array(
    operation: Operation,
    call: &ArrayCall,
    selected: FileSelection<'_>,
) -> Result<transfer::TransferHandle> {
    let began = Instant::now();
    // SAFETY: by contract of this function.
    unsafe {
        let (transfer, buffer, with) = call.read(operation, selected)?;
        start(&transfer, buffer, with, began)
    }
}

/// # Safety
/// As the header requires.
unsafe fn submit_array(
    operation: Operation,
    call: &ArrayCall,
    file_space: hid_t,
    request: *mut *mut CRequest,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        let place = requests::place_of(request)?;
        let started = start_array(operation, call, FileSelection::Space(file_space))?;
        requests::store(place, AnyRequest::Dataset(started));
        Ok(OK)
    })
}

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_dataset_read_submit(
    dataset: hid_t,
    file_space: hid_t,
    array: *const CArray,
    options: *const COptions,
    stream: *mut c_void,
    flags: c_int,
    request: *mut *mut CRequest,
) -> c_int {
    let call = ArrayCall::new(dataset, array, options, stream, flags);
    // SAFETY: passed on.
    unsafe { submit_array(Operation::Read, &call, file_space, request) }
}

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_dataset_write_submit(
    dataset: hid_t,
    file_space: hid_t,
    array: *const CArray,
    options: *const COptions,
    stream: *mut c_void,
    flags: c_int,
    request: *mut *mut CRequest,
) -> c_int {
    let call = ArrayCall::new(dataset, array, options, stream, flags);
    // SAFETY: passed on.
    unsafe { submit_array(Operation::Write, &call, file_space, request) }
}

/// The arguments of H5Dread or H5Dwrite.
struct Call {
    dataset: hid_t,
    memory_type: hid_t,
    memory_space: hid_t,
    file_space: hid_t,
    transfer: hid_t,
    buffer: *mut c_void,
}

/// # Safety
/// As the header requires.
unsafe fn transfer_now(
    operation: Operation,
    call: &Call,
    stream: *mut c_void,
    options: *const COptions,
    report: *mut CReport,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        let began = Instant::now();
        check_size(report)?;
        let transfer = DatasetTransfer {
            operation,
            dataset: call.dataset,
            memory_type: call.memory_type,
            shape: MemoryShape::Space(call.memory_space),
            file_selection: FileSelection::Space(call.file_space),
            transfer_list: call.transfer,
            options: options::read(options)?,
            file: None,
        };
        let buffer = Buffer::at(call.buffer as usize)?;
        let with = SubmitOptions {
            options: transfer.options,
            stream: after(&buffer.memory, stream),
            ..SubmitOptions::default()
        };
        let request = start(&transfer, buffer, with, began)?;
        request.finish()?;
        report::write_of(report, &request);
        Ok(OK)
    })
}

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_dataset_read(
    dataset: hid_t,
    memory_type: hid_t,
    memory_space: hid_t,
    file_space: hid_t,
    transfer_plist: hid_t,
    buffer: *mut c_void,
    stream: *mut c_void,
    options: *const COptions,
    report: *mut CReport,
) -> c_int {
    let call = Call {
        dataset,
        memory_type,
        memory_space,
        file_space,
        transfer: transfer_plist,
        buffer,
    };
    // SAFETY: passed on.
    unsafe { transfer_now(Operation::Read, &call, stream, options, report) }
}

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_dataset_write(
    dataset: hid_t,
    memory_type: hid_t,
    memory_space: hid_t,
    file_space: hid_t,
    transfer_plist: hid_t,
    buffer: *const c_void,
    stream: *mut c_void,
    options: *const COptions,
    report: *mut CReport,
) -> c_int {
    let call = Call {
        dataset,
        memory_type,
        memory_space,
        file_space,
        transfer: transfer_plist,
        buffer: buffer.cast_mut(),
    };
    // SAFETY: passed on. A write only reads the buffer.
    unsafe { transfer_now(Operation::Write, &call, stream, options, report) }
}

/// Returns the order of a transfer relative to a stream; `None` for host memory, which has no
/// order.
///
/// # Safety
/// `stream` is a live stream.
unsafe fn after(memory: &Memory, stream: *mut c_void) -> Option<StreamOrder> {
    memory.context.as_ref()?;
    Some(StreamOrder {
        // SAFETY: by contract of this function.
        stream: unsafe { Stream::from_raw(stream) },
        after: true,
        before: false,
    })
}

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_dataset_creation_list(dataset: hid_t, list: *mut hid_t) -> c_int {
    guard(|| {
        refuse_fork()?;
        if list.is_null() {
            return Err(null("list"));
        }
        // SAFETY: the header requires that the caller holds HDF5's lock.
        let hdf5 = BINDING.get()?;
        let found = inside(hdf5, || {
            // SAFETY: the header requires that the caller holds HDF5's lock, if that has one.
            let session = unsafe { Session::begin(hdf5) };
            creation_properties(&session, dataset).map(Id::keep)
        })?;
        // SAFETY: the header requires a place for an identifier.
        unsafe { list.write(found) };
        Ok(OK)
    })
}

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_dataset_settle(dataset: hid_t, operation: c_int) -> c_int {
    guard(|| {
        refuse_fork()?;
        let access = match requests::operation_of(operation)? {
            Operation::Read => Access::Read,
            Operation::Write => Access::Write,
        };
        // SAFETY: the header requires that the caller holds HDF5's lock.
        unsafe { wait_for_dataset(BINDING.get()?, dataset, access)? };
        Ok(OK)
    })
}

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_dataset_prepare_copy(dataset: hid_t) -> c_int {
    guard(|| {
        // SAFETY: the header requires that the caller holds HDF5's lock.
        unsafe { transfer::prepare_dataset_for_copy(BINDING.get()?, dataset)? };
        Ok(OK)
    })
}

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_object_prepare_copy(
    location: hid_t,
    name: *const c_char,
    list: hid_t,
) -> c_int {
    guard(|| {
        if name.is_null() {
            return Err(null("name"));
        }
        // SAFETY: the header requires a C string, and that the caller holds HDF5's lock.
        unsafe {
            let name = CStr::from_ptr(name);
            transfer::prepare_for_copy(BINDING.get()?, location, name, list)?;
        }
        Ok(OK)
    })
}

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_hdf5_settle(object: hid_t) -> c_int {
    guard(|| {
        refuse_fork()?;
        // SAFETY: the header requires that the caller holds HDF5's lock.
        unsafe { wait_for_file(BINDING.get()?, object)? };
        Ok(OK)
    })
}

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_hdf5_settle_path(path: *const c_char) -> c_int {
    guard(|| {
        refuse_fork()?;
        // SAFETY: the caller gives a C string.
        let path = unsafe { path_of(path)? };
        // Pending transfers imply that HDF5 has been found.
        if !transfer::nothing_is_pending() {
            // SAFETY: the header requires that the caller holds HDF5's lock.
            unsafe { wait_for_path(BINDING.get()?, path) };
        }
        Ok(OK)
    })
}

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_hdf5_sync(object: hid_t, options: *const COptions) -> c_int {
    guard(|| {
        // SAFETY: the header requires null or valid options.
        let options = unsafe { options::read(options)? };
        // A forked child also flushes what it writes.
        if options_without_engine(options)?.durable != Some(true) {
            return Ok(OK);
        }
        match object {
            0 => may_make_durable()?,
            // SAFETY: the header requires that the caller holds HDF5's lock.
            _ => unsafe { make_durable(BINDING.get()?, object)? },
        }
        Ok(OK)
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
