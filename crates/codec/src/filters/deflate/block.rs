//! Blocks of a deflate stream: symbols, the choice of their code, and bits.

use super::codes::{Bits, codes, lengths};

/// Symbols of a block, as many as in zlib's.
pub(super) const MOST_SYMBOLS: usize = (1 << 14) - 1;

/// The longest match.
pub(super) const LONGEST: usize = 258;

const END: usize = 256;
/// Literals, the end and lengths; the fixed code has two more symbols than are used.
const LITERALS: usize = 288;
const DISTANCES: usize = 30;

/// The order in which the header has the lengths of the codes of code lengths.
const ORDER: [usize; 19] = [
    16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15,
];

/// Symbol and extra bits of a length or a distance, minus the least one, with `exact` symbols for each
/// power of two.
const fn split(value: u32, exact: u32) -> (usize, u32) {
    if value < 2 * exact {
        return (value as usize, 0);
    }
    let extra = value.ilog2() - exact.ilog2();
    let first = (extra + 1) * exact;
    ((first + (value >> extra) - exact) as usize, extra)
}

/// Symbol and extra bits of each length from 3.
const LENGTHS: [(usize, u32); 256] = {
    let mut table = [(0, 0); 256];
    let mut at = 0;
    while at < 255 {
        let (symbol, extra) = split(at as u32, 4);
        table[at] = (END + 1 + symbol, extra);
        at += 1;
    }
    table[255] = (285, 0);
    table
};

const fn distance_symbol(distance: usize) -> (usize, u32) {
    split(distance as u32 - 1, 2)
}

/// Extra bits of the end and of each symbol of a length.
const LENGTH_EXTRA: [u8; LITERALS - END] = {
    let mut table = [0; LITERALS - END];
    let mut at = 0;
    while at < 256 {
        let (symbol, extra) = LENGTHS[at];
        table[symbol - END] = extra as u8;
        at += 1;
    }
    table
};

/// Extra bits of each symbol of a distance.
const DISTANCE_EXTRA: [u8; DISTANCES] = {
    let mut table = [0; DISTANCES];
    let mut at = 4;
    while at < DISTANCES {
        table[at] = (at / 2 - 1) as u8;
        at += 1;
    }
    table
};

/// Literals, and the match after them.
#[derive(Clone, Copy)]
struct Sequence {
    literals: u16,
    distance: u16,
    /// Minus 3.
    length: u8,
}

/// The symbols of a block, in which literals that no match follows are at the end.
pub(super) struct Symbols {
    list: Vec<Sequence>,
    /// Symbols of the list.
    count: usize,
    literals: [u32; LITERALS],
    distances: [u32; DISTANCES],
}

impl Symbols {
    pub(super) fn new() -> Symbols {
        Symbols {
            list: Vec::with_capacity(MOST_SYMBOLS),
            count: 0,
            literals: [0; LITERALS],
            distances: [0; DISTANCES],
        }
    }

    /// Whether the block is full with this number of literals after the last match.
    pub(super) fn are_full(&self, literals: usize) -> bool {
        self.count + literals >= MOST_SYMBOLS
    }

    /// Appends a literal.
    pub(super) fn literal(&mut self, byte: u8) {
        self.literals[usize::from(byte)] += 1;
    }

    /// Appends a number of literals and a match.
    pub(super) fn repeat(&mut self, literals: usize, distance: usize, length: usize) {
        self.list.push(Sequence {
            literals: literals as u16,
            distance: distance as u16,
            length: (length - 3) as u8,
        });
        self.count += literals + 1;
        self.literals[LENGTHS[length - 3].0] += 1;
        self.distances[distance_symbol(distance).0] += 1;
    }

    /// Calls a function with the literals before each match, and with those at the end.
    fn for_each(&self, mut bytes: &[u8], mut act: impl FnMut(&[u8], Option<&Sequence>)) {
        for sequence in &self.list {
            let (literals, rest) = bytes.split_at(usize::from(sequence.literals));
            act(literals, Some(sequence));
            bytes = &rest[usize::from(sequence.length) + 3..];
        }
        act(bytes, None);
    }

    /// Writes the block that stands for `bytes`, in the shortest of the three forms, and starts a new
    /// one. `None` if it does not fit.
    pub(super) fn flush(&mut self, bytes: &[u8], is_last: bool, out: &mut Output) -> Option<()> {
        self.literals[END] = 1;
        let own = Codes::of(&self.literals, &self.distances);
        let header = own.header();
        let header_bits: u32 = header.iter().map(|bits| bits.count).sum();
        let own_bits = u64::from(header_bits + own.bits(self));
        let fixed_bits = u64::from(FIXED.bits(self));
        let stored_bits = (bytes.len() as u64 + 4) * 8 + 7;
        let first = u64::from(is_last);
        if stored_bits < own_bits.min(fixed_bits) {
            out.store(bytes, is_last)?;
        } else if fixed_bits <= own_bits {
            out.reserve(fixed_bits + 3)?;
            out.write(Bits::new(first | 1 << 1, 3));
            FIXED.write(self, bytes, out);
        } else {
            out.reserve(own_bits + 3)?;
            out.write(Bits::new(first | 2 << 1, 3));
            header.iter().for_each(|bits| out.write(*bits));
            own.write(self, bytes, out);
        }
        self.clear();
        Some(())
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.count = 0;
        self.literals.fill(0);
        self.distances.fill(0);
    }
}

/// The codes of a block.
struct Codes {
    literal_lengths: [u8; LITERALS],
    distance_lengths: [u8; DISTANCES],
}

/// The code that needs no description.
const FIXED: Codes = {
    let mut literal_lengths = [8; LITERALS];
    let mut symbol = 144;
    while symbol < 280 {
        literal_lengths[symbol] = if symbol < END { 9 } else { 7 };
        symbol += 1;
    }
    Codes {
        literal_lengths,
        distance_lengths: [5; DISTANCES],
    }
};

impl Codes {
    fn of(literals: &[u32; LITERALS], distances: &[u32; DISTANCES]) -> Codes {
        let mut made = Codes {
            literal_lengths: [0; LITERALS],
            distance_lengths: [0; DISTANCES],
        };
        lengths(literals, 15, &mut made.literal_lengths);
        lengths(distances, 15, &mut made.distance_lengths);
        made
    }

    /// Returns how many bits the symbols take.
    fn bits(&self, symbols: &Symbols) -> u32 {
        let bits = |counts: &[u32], lengths: &[u8], extra: &[u8]| -> u32 {
            let each = counts.iter().zip(lengths).zip(extra);
            each.map(|((count, length), extra)| count * u32::from(length + extra))
                .sum()
        };
        let Symbols {
            literals,
            distances,
            ..
        } = symbols;
        bits(&literals[..END], &self.literal_lengths, &[0; END])
            + bits(
                &literals[END..],
                &self.literal_lengths[END..],
                &LENGTH_EXTRA,
            )
            + bits(distances, &self.distance_lengths, &DISTANCE_EXTRA)
    }

    /// Returns the description of the codes.
    fn header(&self) -> Vec<Bits> {
        let used = |lengths: &[u8], least: usize| {
            let last = lengths.iter().rposition(|length| *length > 0);
            last.map_or(least, |last| (last + 1).max(least))
        };
        let literals = used(&self.literal_lengths, 257);
        let distances = used(&self.distance_lengths, 1);
        let mut all = self.literal_lengths[..literals].to_vec();
        all.extend(&self.distance_lengths[..distances]);
        let runs = runs(&all);
        let mut counts = [0; 19];
        for (symbol, _) in &runs {
            counts[*symbol] += 1;
        }
        let mut own = [0; 19];
        lengths(&counts, 7, &mut own);
        let codes = codes(&own);
        let listed = ORDER.iter().rposition(|symbol| own[*symbol] > 0);
        let listed = listed.map_or(4, |last| (last + 1).max(4));
        let mut header = vec![
            Bits::new(literals as u64 - 257, 5),
            Bits::new(distances as u64 - 1, 5),
            Bits::new(listed as u64 - 4, 4),
        ];
        let lengths = ORDER[..listed].iter();
        header.extend(lengths.map(|symbol| Bits::new(u64::from(own[*symbol]), 3)));
        header.extend(runs.iter().map(|(symbol, more)| {
            let extra = [2, 3, 7].get(symbol.wrapping_sub(16)).copied().unwrap_or(0);
            codes[*symbol].then(*more, extra)
        }));
        header
    }

    fn write(&self, symbols: &Symbols, bytes: &[u8], out: &mut Output) {
        let literals = codes(&self.literal_lengths);
        let distances = codes(&self.distance_lengths);
        let mut lengths = [Bits::default(); 256];
        for (at, bits) in lengths.iter_mut().enumerate() {
            let (symbol, extra) = LENGTHS[at];
            *bits = literals[symbol].then(low(at, extra), extra);
        }
        symbols.for_each(bytes, |run, sequence| {
            // Three codes have at most 45 bits.
            let mut threes = run.chunks_exact(3);
            for three in &mut threes {
                let [a, b, c] = [0, 1, 2].map(|at| literals[usize::from(three[at])]);
                out.write(a.then(b.value, b.count).then(c.value, c.count));
            }
            for byte in threes.remainder() {
                out.write(literals[usize::from(*byte)]);
            }
            if let Some(sequence) = sequence {
                let distance = usize::from(sequence.distance);
                let (code, extra) = distance_symbol(distance);
                let far = distances[code].then(low(distance - 1, extra), extra);
                let length = lengths[usize::from(sequence.length)];
                out.write(length.then(far.value, far.count));
            }
        });
        out.write(literals[END]);
    }
}

fn low(value: usize, bits: u32) -> u64 {
    value as u64 & ((1 << bits) - 1)
}

/// Returns code lengths as symbols with their extra bits: repetitions are symbols 16 to 18.
fn runs(lengths: &[u8]) -> Vec<(usize, u64)> {
    let mut found = Vec::new();
    for run in lengths.chunk_by(|one, other| one == other) {
        let (length, mut left) = (usize::from(run[0]), run.len());
        if length > 0 {
            found.push((length, 0));
            left -= 1;
        }
        while left >= 3 {
            let (symbol, least, most) = match (length, left) {
                (0, 11..) => (18, 11, 138),
                (0, _) => (17, 3, 10),
                _ => (16, 3, 6),
            };
            let taken = left.min(most);
            found.push((symbol, (taken - least) as u64));
            left -= taken;
        }
        found.extend(std::iter::repeat_n((length, 0), left));
    }
    found
}

/// Where a stream is written.
pub(super) struct Output<'a> {
    memory: &'a mut [u8],
    length: usize,
    pending: Bits,
}

impl<'a> Output<'a> {
    /// Bytes of the memory beyond the stream: bits are stored eight bytes at a time.
    pub(super) const SLACK: usize = 8;

    pub(super) fn new(memory: &'a mut [u8]) -> Output<'a> {
        Output {
            memory,
            length: 0,
            pending: Bits::default(),
        }
    }

    /// Makes sure that some bits fit.
    fn reserve(&self, bits: u64) -> Option<()> {
        let end = self.length as u64 + (bits + 7).div_ceil(8);
        (end + Self::SLACK as u64 <= self.memory.len() as u64).then_some(())
    }

    /// Writes at most 48 bits, for which there is room.
    fn write(&mut self, bits: Bits) {
        let pending = self.pending.then(bits.value, bits.count);
        let place = &mut self.memory[self.length..self.length + 8];
        place.copy_from_slice(&pending.value.to_le_bytes());
        let whole = pending.count / 8;
        self.length += whole as usize;
        self.pending = Bits::new(pending.value >> (whole * 8), pending.count % 8);
    }

    fn align(&mut self) {
        let missing = (8 - self.pending.count % 8) % 8;
        self.write(Bits::new(0, missing));
    }

    /// Writes bytes as they are.
    fn store(&mut self, bytes: &[u8], is_last: bool) -> Option<()> {
        let pieces = bytes.len().div_ceil(0xffff);
        for (at, piece) in bytes.chunks(0xffff).enumerate() {
            self.reserve(8 * (piece.len() as u64 + 5) + 8)?;
            self.write(Bits::new(u64::from(is_last && at + 1 == pieces), 3));
            self.align();
            let length = piece.len() as u64;
            self.write(Bits::new(length | (length ^ 0xffff) << 16, 32));
            self.bytes(piece)?;
        }
        Some(())
    }

    /// Appends bytes to a stream that has ended at a whole byte.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Option<()> {
        self.memory
            .get_mut(self.length..self.length + bytes.len())?
            .copy_from_slice(bytes);
        self.length += bytes.len();
        Some(())
    }

    /// Ends the stream with a checksum; returns its length.
    pub(super) fn finish(&mut self, checksum: u32) -> Option<usize> {
        self.align();
        self.bytes(&checksum.to_be_bytes())?;
        Some(self.length)
    }
}
