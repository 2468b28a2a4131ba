//! Parameters, which can be set only while cuFile is closed.

use std::sync::Mutex;

use penstock_sys::cufile::*;

use super::{Failure, Result, session, statistics};

const SIZES: usize = 12;
const BOOLS: usize = 14;
const TEXTS: usize = 3;

/// The default, least and greatest value of each parameter of type `size_t`.
const LIMITS: [(usize, usize, usize); SIZES] = [
    (0, 0, 3),
    (128, 1, 1024),
    (4, 0, 128),
    (8192, 4, 1 << 20),
    (4, 0, 128),
    (16384, 4, 16384),
    (131_072, 4, 1 << 22),
    (1024, 4, 1 << 20),
    (33_554_432, 4, 1 << 30),
    (128, 1, 256),
    (4, 4, 1 << 20),
    (5, 1, 1000),
];

pub struct Parameters {
    sizes: [usize; SIZES],
    bools: [bool; BOOLS],
    texts: [String; TEXTS],
}

static PARAMETERS: Mutex<Option<Parameters>> = Mutex::new(None);

fn with<T>(touch: impl FnOnce(&mut Parameters) -> T) -> T {
    touch(
        PARAMETERS
            .lock()
            .unwrap()
            .get_or_insert_with(Parameters::new),
    )
}

impl Parameters {
    fn new() -> Parameters {
        let mut bools = [false; BOOLS];
        for on in [
            CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE,
            CUFILE_PARAM_EXECUTION_PARALLEL_IO,
            CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY,
        ] {
            bools[on as usize] = true;
        }
        Parameters {
            sizes: LIMITS.map(|(default, ..)| default),
            bools,
            texts: ["ERROR", "", ""].map(String::from),
        }
    }

    /// The driver properties that are parameters.
    pub fn properties() -> CUfileDrvProps {
        with(|parameters| {
            let size = |parameter: i32| parameters.sizes[parameter as usize];
            let flag =
                |parameter: i32, bit: u32| u32::from(parameters.bools[parameter as usize]) << bit;
            let small = |parameter| size(parameter) as u32;
            CUfileDrvProps {
                nvfs: CUfileDrvPropsNvfs {
                    poll_thresh_size: size(CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB),
                    max_direct_io_size: size(CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB),
                    dcontrolflags: flag(
                        CUFILE_PARAM_PROPERTIES_USE_POLL_MODE,
                        CU_FILE_USE_POLL_MODE,
                    ) | flag(
                        CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE,
                        CU_FILE_ALLOW_COMPAT_MODE,
                    ),
                    ..CUfileDrvPropsNvfs::default()
                },
                max_device_cache_size: small(CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB),
                per_buffer_cache_size: small(CUFILE_PARAM_PROPERTIES_PER_BUFFER_CACHE_SIZE_KB),
                max_device_pinned_mem_size: small(
                    CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB,
                ),
                max_batch_io_size: small(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE),
                max_batch_io_timeout_msecs: small(CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS),
                ..CUfileDrvProps::default()
            }
        })
    }
}

fn index_of(parameter: i32, count: usize) -> Result<usize> {
    usize::try_from(parameter)
        .ok()
        .filter(|&at| at < count)
        .ok_or(Failure::Operation(CU_FILE_INVALID_VALUE))
}

fn check_closed() -> Result {
    match session::uses() {
        0 => Ok(()),
        _ => Err(Failure::Operation(CU_FILE_DRIVER_ALREADY_OPEN)),
    }
}

pub fn bool(parameter: i32) -> bool {
    with(|parameters| parameters.bools[parameter as usize])
}

pub fn get_bool(parameter: i32) -> Result<bool> {
    index_of(parameter, BOOLS).map(|at| with(|parameters| parameters.bools[at]))
}

pub fn set_bool(parameter: i32, value: bool) -> Result {
    let at = index_of(parameter, BOOLS)?;
    check_closed()?;
    with(|parameters| parameters.bools[at] = value);
    Ok(())
}

pub fn size(parameter: i32) -> usize {
    with(|parameters| parameters.sizes[parameter as usize])
}

pub fn get_size(parameter: i32) -> Result<usize> {
    index_of(parameter, SIZES).map(|at| with(|parameters| parameters.sizes[at]))
}

pub fn set_size(parameter: i32, value: usize) -> Result {
    let at = index_of(parameter, SIZES)?;
    let (_, least, greatest) = LIMITS[at];
    if !(least..=greatest).contains(&value) {
        return Err(Failure::Operation(CU_FILE_INVALID_VALUE));
    }
    check_closed()?;
    with(|parameters| parameters.sizes[at] = value);
    if parameter == CUFILE_PARAM_PROFILE_STATS {
        statistics::set_level(value as i32)?;
    }
    Ok(())
}

pub fn get_text(parameter: i32) -> Result<String> {
    index_of(parameter, TEXTS).map(|at| with(|parameters| parameters.texts[at].clone()))
}

pub fn set_text(parameter: i32, value: String) -> Result {
    let at = index_of(parameter, TEXTS)?;
    check_closed()?;
    with(|parameters| parameters.texts[at] = value);
    Ok(())
}
