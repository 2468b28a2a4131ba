//! `penstock_options` and the engine's options.

use std::ffi::{c_char, c_int};

use penstock_engine::error::{Error, Result};
use penstock_engine::options::{Choice, Decoder, IoMode, Options, RouteName};
use penstock_engine::set_process_options;
use penstock_engine::size;

use crate::arguments::{null, place_of, string_of};
use crate::error::guard;
use crate::structs::{check_size, fill, size_of_arguments};

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct COptions {
    struct_size: usize,
    threads: u32,
    queue_depth: u32,
    block: u64,
    route: i32,
    io: i32,
    direct: i32,
    durable: i32,
    scratch: u64,
    decode: i32,
    slots: u32,
}

/// Returns the value of an enumerator in the header; 0 means "not set".
fn named<T: Copy>(key: &str, number: i32, values: &[T]) -> Result<Option<T>> {
    match usize::try_from(number) {
        Ok(0) => Ok(None),
        Ok(n) if n <= values.len() => Ok(Some(values[n - 1])),
        _ => Err(Error::invalid(format!(
            "option {key} is {number}, but must be between 0 and {}",
            values.len()
        ))),
    }
}

/// Returns the enumerator of a value in the header; 0 without one.
pub(crate) fn number_of<T: PartialEq>(value: Option<T>, values: &[T]) -> i32 {
    let position = value.and_then(|value| values.iter().position(|known| *known == value));
    position.map_or(0, |at| at as i32 + 1)
}

pub(crate) const ROUTES: [RouteName; 5] = [
    RouteName::Auto,
    RouteName::Host,
    RouteName::Staged,
    RouteName::Mapped,
    RouteName::Gds,
];
const IOS: [IoMode; 4] = [IoMode::Auto, IoMode::Threads, IoMode::Uring, IoMode::Mmap];
const DECODERS: [Decoder; 3] = [Decoder::Auto, Decoder::Cpu, Decoder::Gpu];
const CHOICES: [Choice; 3] = [Choice::Auto, Choice::No, Choice::Yes];

/// Reads the options at a pointer. Null sets no option.
///
/// # Safety
/// `options` is null or points to a `penstock_options` of `struct_size` bytes.
pub(crate) unsafe fn read(options: *const COptions) -> Result<Options> {
    if options.is_null() {
        return Ok(Options::default());
    }
    // SAFETY: by contract of this function.
    let size = unsafe { size_of_arguments(options, "options")? };
    let mut known = COptions::default();
    // SAFETY: by contract, `size` bytes are readable; every bit pattern is a valid COptions.
    unsafe {
        std::ptr::copy_nonoverlapping(
            options.cast::<u8>(),
            (&raw mut known).cast::<u8>(),
            size.min(size_of::<COptions>()),
        );
    }
    let set = |n: u32| (n != 0).then_some(n);
    let set_bytes = |n: u64| (n != 0).then_some(n);
    let options = Options {
        threads: set(known.threads),
        queue_depth: set(known.queue_depth),
        slots: set(known.slots),
        block: set_bytes(known.block),
        route: named("route", known.route, &ROUTES)?,
        io: named("io", known.io, &IOS)?,
        direct: named("direct", known.direct, &CHOICES)?,
        durable: match named("durable", known.durable, &CHOICES)? {
            Some(Choice::Yes) => Some(true),
            Some(Choice::No) => Some(false),
            Some(Choice::Auto) | None => None,
        },
        scratch: set_bytes(known.scratch),
        decode: named("decode", known.decode, &DECODERS)?,
    };
    options.check()?;
    Ok(options)
}

fn write(options: &Options) -> COptions {
    let choice = |is_durable| if is_durable { Choice::Yes } else { Choice::No };
    let durable = options.durable.map(choice);
    COptions {
        struct_size: size_of::<COptions>(),
        threads: options.threads.unwrap_or(0),
        queue_depth: options.queue_depth.unwrap_or(0),
        block: options.block.unwrap_or(0),
        route: number_of(options.route, &ROUTES),
        io: number_of(options.io, &IOS),
        direct: number_of(options.direct, &CHOICES),
        durable: number_of(durable, &CHOICES),
        scratch: options.scratch.unwrap_or(0),
        decode: number_of(options.decode, &DECODERS),
        slots: options.slots.unwrap_or(0),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_options_parse(text: *const c_char, options: *mut COptions) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        let text = string_of(text, "text")?.to_string_lossy();
        if options.is_null() {
            return Err(null("options"));
        }
        check_size(options.cast(), "options")?;
        fill(options, write(&Options::parse(&text)?));
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_parse_size(text: *const c_char, bytes: *mut u64) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        let text = string_of(text, "text")?.to_string_lossy();
        *place_of(bytes, "bytes")? = size::parse(&text).ok_or_else(|| {
            Error::invalid(format!("{text:?} is not a size below 2^63 bytes"))
                .remedy("write, for example, 4194304, 64KiB, 1.5MiB or 1GB")
        })?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_set_default_options(options: *const COptions) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| set_process_options(unsafe { read(options)? }))
}
