//! Options as values: call > file > process > environment > tuned profile > default, merged once per
//! request.

use std::fmt;

use crate::error::{Error, Result};
use crate::size;

/// How bytes travel between a file and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RouteName {
    /// The engine chooses for each request.
    Auto,
    /// Straight into host memory, by system calls.
    Host,
    /// Through pinned slots, which the copy engines of the GPU empty or fill.
    Staged,
    /// From pinned pages of the page cache, which the GPU pulls; for reads.
    Mapped,
    /// By cuFile.
    Gds,
    /// By HDF5 itself, through host memory. Only reports have it; options cannot select it.
    Hdf5,
}

/// Which processor decodes chunks that go to a GPU, and encodes those that come from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoder {
    /// Whichever is faster; decoding is shared by measured rates.
    Auto,
    /// The CPU's cores.
    Cpu,
    /// The GPU, for filters that it can decode or encode.
    Gpu,
}

/// Which mechanism issues reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMode {
    /// The engine chooses for each request.
    Auto,
    /// `pread` and `pwrite` on the workers' threads.
    Threads,
    /// io_uring, with several calls in flight per worker.
    Uring,
    /// As `Threads`, with copies into mappings of the file where a write fills holes.
    Mmap,
}

/// A switch that can be left to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The engine chooses.
    Auto,
    /// Off.
    No,
    /// On; an error where that is impossible.
    Yes,
}

/// The keys that [`Options::set`] takes.
const KEYS: &str =
    "threads, block, route, io, direct, queue_depth, slots, durable, scratch, decode";

pub(crate) const MAX_THREADS: u32 = 256;
pub(crate) const MAX_QUEUE_DEPTH: u32 = 256;
pub(crate) const MAX_SLOTS: u32 = 64;
pub(crate) const MIN_BLOCK: u64 = 4 << 10;
pub(crate) const MAX_BLOCK: u64 = 1 << 30;
pub(crate) const MIN_SCRATCH: u64 = 1 << 20;
pub(crate) const MAX_SCRATCH: u64 = 1 << 40;

/// One level of options. `None` leaves an option to the next outer level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Workers that serve one request: 1 to 256.
    pub threads: Option<u32>,
    /// Reads or writes that a worker keeps in flight with io_uring: 1 to 256.
    pub queue_depth: Option<u32>,
    /// Pinned slots that a worker of the staged route fills and empties in turn: 1 to 64.
    pub slots: Option<u32>,
    /// Bytes that a worker moves at a time: 4 KiB to 1 GiB.
    pub block: Option<u64>,
    /// The route between file and memory.
    pub route: Option<RouteName>,
    /// The mechanism of reads and writes.
    pub io: Option<IoMode>,
    /// Whether O_DIRECT is used; by default for pages that are not cached.
    pub direct: Option<Choice>,
    /// Whether a write finishes only when data and size are on the medium.
    pub durable: Option<bool>,
    /// Bytes of GPU memory for chunks that are being decoded or encoded: 1 MiB to 1 TiB.
    pub scratch: Option<u64>,
    /// Which processor decodes chunks for the GPU, and encodes its chunks.
    pub decode: Option<Decoder>,
}

/// The options whose settings are `$merge` of those of two levels.
macro_rules! merged {
    ($merge:path, $one:expr, $two:expr) => {
        Options {
            threads: $merge($one.threads, $two.threads),
            queue_depth: $merge($one.queue_depth, $two.queue_depth),
            slots: $merge($one.slots, $two.slots),
            block: $merge($one.block, $two.block),
            route: $merge($one.route, $two.route),
            io: $merge($one.io, $two.io),
            direct: $merge($one.direct, $two.direct),
            durable: $merge($one.durable, $two.durable),
            scratch: $merge($one.scratch, $two.scratch),
            decode: $merge($one.decode, $two.decode),
        }
    };
}

impl Options {
    /// The settings of this level, completed by those of `outer`.
    pub fn or(self, outer: Options) -> Options {
        merged!(Option::or, self, outer)
    }

    /// The settings of this level that `inner` leaves open.
    pub fn without(self, inner: &Options) -> Options {
        fn left<T>(mine: Option<T>, inner: Option<T>) -> Option<T> {
            mine.filter(|_| inner.is_none())
        }
        merged!(left, self, inner)
    }

    /// Checks that each value is in its range.
    ///
    /// # Errors
    /// [`Kind::Invalid`](crate::error::Kind::Invalid), with the key and the range.
    pub fn check(&self) -> Result<()> {
        let ranges = [
            (
                "threads",
                self.threads.map(u64::from),
                1,
                MAX_THREADS.into(),
            ),
            (
                "queue_depth",
                self.queue_depth.map(u64::from),
                1,
                MAX_QUEUE_DEPTH.into(),
            ),
            ("slots", self.slots.map(u64::from), 1, MAX_SLOTS.into()),
            ("block", self.block, MIN_BLOCK, MAX_BLOCK),
            ("scratch", self.scratch, MIN_SCRATCH, MAX_SCRATCH),
        ];
        for (key, value, low, high) in ranges {
            if let Some(value) = value.filter(|value| !(low..=high).contains(value)) {
                return Err(Error::invalid(format!(
                    "option {key} is {value}, but must lie between {low} and {high}"
                )));
            }
        }
        Ok(())
    }

    /// Reads "threads=8;block=4MiB;route=auto;io=auto;direct=auto;queue_depth=16;slots=2;durable=no".
    /// Keys may be left out; spaces around keys and values are allowed.
    pub fn parse(text: &str) -> Result<Options> {
        Options::parse_with(text, "", &mut |_, _| Ok(false))
    }

    /// As [`parse`](Self::parse), for text that may hold keys of another part of Penstock.
    ///
    /// Passes each key that the engine does not know to `others`, which returns whether it took the
    /// key. `also` lists these keys for the remedy of an error.
    pub fn parse_with(
        text: &str,
        also: &str,
        others: &mut dyn FnMut(&str, &str) -> Result<bool>,
    ) -> Result<Options> {
        let mut options = Options::default();
        for item in text.split(';').map(str::trim).filter(|i| !i.is_empty()) {
            let (key, value) = item.split_once('=').ok_or_else(|| {
                Error::invalid(format!("option {item:?} has no value"))
                    .remedy("write key=value, separated by semicolons")
            })?;
            let (key, value) = (key.trim(), value.trim());
            if !options.set(key, value)? && !others(key, value)? {
                let also = if also.is_empty() {
                    ""
                } else {
                    &format!(", {also}")
                };
                return Err(Error::invalid(format!("unknown option {key:?}"))
                    .remedy(format!("known options: {KEYS}{also}")));
            }
        }
        options.check()?;
        Ok(options)
    }

    /// Sets one key and returns whether the engine knows it. [`check`](Self::check) checks ranges.
    ///
    /// # Errors
    /// [`Kind::Invalid`](crate::error::Kind::Invalid) if the key is known and the value is malformed.
    pub fn set(&mut self, key: &str, value: &str) -> Result<bool> {
        match key {
            "threads" => self.threads = Some(number(key, value)?),
            "queue_depth" => self.queue_depth = Some(number(key, value)?),
            "slots" => self.slots = Some(number(key, value)?),
            "block" => self.block = Some(parse_size(key, value)?),
            "route" => self.route = Some(word(key, value, &ROUTES)?),
            "io" => self.io = Some(word(key, value, &IO_MODES)?),
            "direct" => self.direct = Some(word(key, value, &CHOICES)?),
            "durable" => self.durable = Some(word(key, value, &TRUTHS)?),
            "scratch" => self.scratch = Some(parse_size(key, value)?),
            "decode" => self.decode = Some(word(key, value, &DECODERS)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Writes the keys that are set, in the form that [`Options::parse`] reads.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |n: Option<u32>| n.map(|n| n.to_string());
        let items = [
            ("route", self.route.map(|v| name_of(v, &ROUTES).to_owned())),
            ("io", self.io.map(|v| name_of(v, &IO_MODES).to_owned())),
            (
                "direct",
                self.direct.map(|v| name_of(v, &CHOICES).to_owned()),
            ),
            ("threads", number(self.threads)),
            ("block", self.block.map(size_text)),
            ("slots", number(self.slots)),
            ("queue_depth", number(self.queue_depth)),
            (
                "durable",
                self.durable.map(|v| name_of(v, &TRUTHS).to_owned()),
            ),
            ("scratch", self.scratch.map(size_text)),
            (
                "decode",
                self.decode.map(|v| name_of(v, &DECODERS).to_owned()),
            ),
        ];
        let mut separator = "";
        for (key, value) in items {
            if let Some(value) = value {
                write!(f, "{separator}{key}={value}")?;
                separator = ";";
            }
        }
        Ok(())
    }
}

pub(crate) const ROUTES: [(&str, RouteName); 5] = [
    ("auto", RouteName::Auto),
    ("host", RouteName::Host),
    ("staged", RouteName::Staged),
    ("mapped", RouteName::Mapped),
    ("gds", RouteName::Gds),
];
pub(crate) const IO_MODES: [(&str, IoMode); 4] = [
    ("auto", IoMode::Auto),
    ("threads", IoMode::Threads),
    ("uring", IoMode::Uring),
    ("mmap", IoMode::Mmap),
];
pub(crate) const CHOICES: [(&str, Choice); 3] = [
    ("auto", Choice::Auto),
    ("no", Choice::No),
    ("yes", Choice::Yes),
];
pub(crate) const TRUTHS: [(&str, bool); 2] = [("no", false), ("yes", true)];
pub(crate) const DECODERS: [(&str, Decoder); 3] = [
    ("auto", Decoder::Auto),
    ("cpu", Decoder::Cpu),
    ("gpu", Decoder::Gpu),
];

/// The word of a value; "auto" for a value without a word.
pub fn name_of<T: Copy + PartialEq>(value: T, words: &[(&'static str, T)]) -> &'static str {
    words
        .iter()
        .find(|(_, meaning)| *meaning == value)
        .map_or("auto", |(name, _)| name)
}

/// A size in the largest unit of which it is a multiple.
fn size_text(bytes: u64) -> String {
    match bytes {
        n if n % (1 << 30) == 0 => format!("{}GiB", n >> 30),
        n if n % (1 << 20) == 0 => format!("{}MiB", n >> 20),
        n if n % (1 << 10) == 0 => format!("{}KiB", n >> 10),
        n => n.to_string(),
    }
}

fn number(key: &str, value: &str) -> Result<u32> {
    value.parse().map_err(|_| {
        let digits = value.strip_prefix('-').unwrap_or(value);
        let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        Error::invalid(if is_whole {
            format!("option {key} is {value}, which is out of range")
        } else {
            format!("option {key} must be a whole number, not {value:?}")
        })
    })
}

/// The meaning of the value of a key.
///
/// # Errors
/// [`Kind::Invalid`](crate::error::Kind::Invalid) for a value that is none of the words.
pub fn word<T: Copy>(key: &str, value: &str, words: &[(&str, T)]) -> Result<T> {
    let found = words.iter().find(|(name, _)| *name == value);
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        Error::invalid(format!(
            "option {key} must be one of {names}, not {value:?}"
        ))
    })
}

/// Reads the value of a key by [`size::parse`].
pub fn parse_size(key: &str, value: &str) -> Result<u64> {
    size::parse(value).ok_or_else(|| {
        Error::invalid(format!(
            "option {key} must be a size like 4194304, 64KiB, 1.5MiB or 1GiB, not {value:?}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_string_sets_the_keys_it_names() {
        let options = Options::parse("threads=8; block=4MiB;route=mapped;durable=yes").unwrap();
        assert_eq!(options.threads, Some(8));
        assert_eq!(options.block, Some(4 << 20));
        assert_eq!(options.route, Some(RouteName::Mapped));
        assert_eq!(options.durable, Some(true));
        assert_eq!(options.io, None);
    }

    #[test]
    fn a_malformed_string_is_an_error_that_names_the_key() {
        for (text, key) in [
            ("threads=many", "threads"),
            ("block=4parsecs", "block"),
            ("block=1", "block"),
            ("route=warp", "route"),
            ("colour=red", "colour"),
            ("threads", "threads"),
            ("threads=0", "threads"),
            ("slots=65", "slots"),
        ] {
            let error = Options::parse(text).unwrap_err();
            assert!(error.cause().contains(key), "{text}: {error}");
        }
    }

    #[test]
    fn a_whole_number_out_of_range_is_reported_as_such() {
        for value in ["-1", "1099511627776"] {
            let error = Options::parse(&format!("threads={value}")).unwrap_err();
            let cause = format!("option threads is {value}, which is out of range");
            assert_eq!(error.cause(), cause);
        }
    }

    #[test]
    fn a_key_of_another_part_goes_to_that_part() {
        let mut taken = Vec::new();
        let options = Options::parse_with("threads=8; mode = sec2", "mode", &mut |key, value| {
            taken.push((key.to_owned(), value.to_owned()));
            Ok(key == "mode")
        })
        .unwrap();
        assert_eq!(options.threads, Some(8));
        assert_eq!(taken, [("mode".to_owned(), "sec2".to_owned())]);
    }

    #[test]
    fn an_unknown_key_is_an_error_that_lists_the_keys_of_all_parts() {
        let error = Options::parse_with("colour=red", "mode", &mut |_, _| Ok(false)).unwrap_err();
        assert!(error.cause().contains("colour"), "{error}");
        assert!(error.remedy_text().ends_with("scratch, decode, mode"));
        let error = Options::parse("colour=red").unwrap_err();
        assert!(error.remedy_text().ends_with("scratch, decode"));
    }

    #[test]
    fn the_error_of_another_part_about_its_key_is_returned() {
        let refuse = &mut |_: &str, _: &str| Err(Error::invalid("option mode must be a word"));
        let error = Options::parse_with("mode=7", "mode", refuse).unwrap_err();
        assert_eq!(error.cause(), "option mode must be a word");
    }

    #[test]
    fn each_listed_key_is_accepted() {
        for key in KEYS.split(", ") {
            // A value that is wrong for all of them distinguishes known keys from unknown ones.
            assert!(Options::default().set(key, "?").is_err(), "{key}");
        }
    }

    #[test]
    fn options_are_written_as_they_are_read() {
        let text = "route=staged;io=uring;direct=no;threads=12;block=4MiB;slots=3;queue_depth=16";
        assert_eq!(Options::parse(text).unwrap().to_string(), text);
        assert_eq!(Options::default().to_string(), "");
        let text = "block=4097;durable=yes;scratch=1GiB;decode=gpu";
        assert_eq!(Options::parse(text).unwrap().to_string(), text);
    }

    #[test]
    fn the_inner_level_wins() {
        let inner = Options::parse("threads=2").unwrap();
        let outer = Options::parse("threads=4;block=1MiB").unwrap();
        let merged = inner.or(outer);
        assert_eq!((merged.threads, merged.block), (Some(2), Some(1 << 20)));
    }
}
