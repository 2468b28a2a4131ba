//! Environment variables, which are read at each use, so that a test can change them.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `CUDASIM_DEVICES` | number of devices, fixed at `cuInit` | 1 |
//! | `CUDASIM_MEMORY` | bytes of each device (suffix K, M, G), fixed at `cuInit` | 8G |
//! | `CUDASIM_COPY_GBPS` | modelled rate of one stream, 0 for no delay | 20 |
//! | `CUDASIM_LAUNCH_US` | modelled cost of one operation of a stream | 5 |
//! | `CUDASIM_CUFILE` | `p2p`, `nvfs`, `posix` or `absent`, fixed while cuFile is open | posix |
//! | `CUDASIM_LANES` | lanes of a warp: 1, or 32 as on a GPU, which is slower | 1 |
//! | `CUDASIM_BLOCKING` | 1: calls wait for their context, see below | |
//! | `CUDASIM_FAIL` | calls that fail, see [`crate::failure`] | |
//! | `CUDASIM_LOG` | 1: log failed calls to stderr | |
//!
//! With `CUDASIM_BLOCKING=1`, some calls wait until all streams of their context are idle, as measured
//! on an H200 with driver 580. Other calls of that context do not begin meanwhile; calls of other
//! contexts do. The calls that wait are:
//!
//! - `cuModuleLoadData`;
//! - `cuMemFree`, `cuMemFreeHost` and `cuMemHostUnregister`, whose context is the one in which the
//!   memory was allocated or pinned;
//! - the creation of a context's 36th stream, and of later ones.
//!
//! Queries of pointers, streams and events (`cuStreamQuery`, `cuEventQuery`) begin at any time.

use std::time::Duration;

pub fn devices() -> usize {
    number("CUDASIM_DEVICES").map_or(1, |count| count as usize)
}

/// Whether kernels run in warps of 32 lanes.
pub fn has_warps() -> bool {
    number("CUDASIM_LANES") == Some(32.0)
}

/// Whether calls wait for their context as on a GPU.
pub fn is_blocking() -> bool {
    variable("CUDASIM_BLOCKING").as_deref() == Some("1")
}

pub fn device_memory() -> usize {
    const DEFAULT: usize = 8 << 30;
    variable("CUDASIM_MEMORY")
        .and_then(|text| parse_size(&text))
        .unwrap_or(DEFAULT)
}

/// The time for which a copy of `bytes` occupies its stream.
pub fn copy_time(bytes: usize) -> Duration {
    let gigabytes_per_second = number("CUDASIM_COPY_GBPS").unwrap_or(20.0);
    let moving = if gigabytes_per_second > 0.0 {
        Duration::from_secs_f64(bytes as f64 / (gigabytes_per_second * 1e9))
    } else {
        Duration::ZERO
    };
    launch_time() + moving
}

pub fn launch_time() -> Duration {
    Duration::from_secs_f64(number("CUDASIM_LAUNCH_US").unwrap_or(5.0) / 1e6)
}

pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

pub fn log(message: std::fmt::Arguments) {
    if variable("CUDASIM_LOG").as_deref() == Some("1") {
        eprintln!("cudasim: {message}");
    }
}

fn number(name: &str) -> Option<f64> {
    variable(name)?
        .parse()
        .ok()
        .filter(|value: &f64| value.is_finite() && *value >= 0.0)
}

fn parse_size(text: &str) -> Option<usize> {
    let text = text.trim().trim_end_matches(['B', 'b', 'i']);
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' | b'k' => (&text[..text.len() - 1], 10),
        b'M' | b'm' => (&text[..text.len() - 1], 20),
        b'G' | b'g' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits
        .trim()
        .parse::<usize>()
        .ok()?
        .checked_shl(shift)
        .filter(|&size| size > 0)
}

#[cfg(test)]
mod tests {
    use super::parse_size;

    #[test]
    fn a_size_may_carry_a_binary_suffix() {
        assert_eq!(parse_size("4096"), Some(4096));
        assert_eq!(parse_size("64K"), Some(64 << 10));
        assert_eq!(parse_size("3MiB"), Some(3 << 20));
        assert_eq!(parse_size("2G"), Some(2 << 30));
        assert_eq!(parse_size("none"), None);
    }
}
