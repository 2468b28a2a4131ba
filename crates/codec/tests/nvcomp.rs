//! nvCOMP compared with the CPU's filters, on a GPU or on the stand-in under `scripts/standin-gpu`.

mod common;

use common::{Done, Gpu};
use penstock_codec::filters::codec;
use penstock_codec::gpu::framing::{Piece, split};
use penstock_codec::gpu::nvcomp::{ALIGNMENT, Batch, Method, SUCCESS};

/// A chunk, its stored form, and the pieces that nvCOMP decodes.
struct Case {
    chunk: Vec<u8>,
    stored: Vec<u8>,
    pieces: Vec<Piece>,
}

impl Case {
    fn new(method: Method, chunk: Vec<u8>) -> Case {
        let values = client_values(method);
        let mut stored = Vec::new();
        let filter = codec(method.filter()).unwrap();
        filter.encode(&values, &chunk, &mut stored).unwrap();
        let mut pieces = Vec::new();
        split(method, &stored, chunk.len(), &mut pieces).unwrap();
        pieces.retain(|piece| !piece.raw);
        Case {
            chunk,
            stored,
            pieces,
        }
    }

    fn inputs(&self) -> impl Iterator<Item = (&[u8], usize)> {
        let input = |piece: &Piece| &self.stored[piece.offset..][..piece.length];
        self.pieces
            .iter()
            .map(move |piece| (input(piece), piece.decoded_length))
    }

    fn expected(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces
            .iter()
            .map(|piece| &self.chunk[piece.decoded_offset..][..piece.decoded_length])
    }
}

fn client_values(method: Method) -> Vec<u32> {
    match method {
        Method::Lz4 => vec![1 << 20],
        _ => vec![3],
    }
}

/// Smooth numbers, as a simulation writes them, with `noise` in the low bits of some.
fn numbers(size: usize, noise: u32) -> Vec<u8> {
    let mut state = 1_u32;
    let mut bytes = Vec::with_capacity(size.next_multiple_of(64));
    for stretch in 0..size.div_ceil(64) {
        let smooth = (stretch as f32 * 0.01).sin().abs() * 1e4;
        for at in 0..16 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let rough = if at % 4 == 0 { state >> 8 & noise } else { 0 };
            bytes.extend_from_slice(&(smooth as u32 ^ rough).to_le_bytes());
        }
    }
    bytes.truncate(size);
    bytes
}

fn chunks() -> Vec<Vec<u8>> {
    let sizes = [
        40,
        100,
        1000,
        4096,
        65_535,
        65_536,
        65_537,
        300_000,
        1 << 20,
        5_000_003,
    ];
    let mut chunks: Vec<Vec<u8>> = sizes.iter().map(|&size| numbers(size, 3)).collect();
    chunks.extend(sizes.iter().map(|&size| vec![7; size]));
    chunks.push(numbers(1 << 20, 0xff_ffff));
    chunks
}

fn assert_decoded(done: &Done, expected: &[u8], what: &str) {
    assert_eq!(done.status, SUCCESS, "{what}");
    assert_eq!(done.size, expected.len() as u64, "{what}");
    let (decoded, margin) = done.memory.split_at(expected.len());
    assert!(decoded == expected, "{what}: other bytes");
    assert!(margin.iter().all(|&byte| byte == Gpu::BEFORE), "{what}");
}

fn decodes(gpu: &Gpu, method: Method, cases: &[Case]) {
    let inputs: Vec<_> = cases.iter().flat_map(Case::inputs).collect();
    let done = gpu.decode(method, &inputs);
    let expected: Vec<_> = cases.iter().flat_map(Case::expected).collect();
    assert_eq!(done.len(), expected.len());
    for (index, (done, expected)) in done.iter().zip(expected).enumerate() {
        assert_decoded(done, expected, &format!("{method:?}, piece {index}"));
    }
}

/// Runs a test once for each method, if there is a GPU.
fn for_each_method(test: impl Fn(&Gpu, Method)) {
    if let Some(gpu) = Gpu::open() {
        for method in [Method::Lz4, Method::Zstd] {
            test(&gpu, method);
        }
    }
}

#[test]
fn pieces_of_many_sizes_decode_to_what_the_filter_encoded() {
    for_each_method(|gpu, method| {
        let cases: Vec<Case> = chunks()
            .into_iter()
            .map(|chunk| Case::new(method, chunk))
            .collect();
        decodes(gpu, method, &cases);
    });
}

#[test]
fn a_batch_of_many_chunks_decodes() {
    for_each_method(|gpu, method| {
        let cases: Vec<Case> = (0..2000)
            .map(|index| Case::new(method, numbers(2000 + 8 * index, index as u32 & 15)))
            .collect();
        decodes(gpu, method, &cases);
    });
}

#[test]
fn several_threads_decode_concurrently() {
    std::thread::scope(|scope| {
        for seed in 0..4 {
            scope.spawn(move || {
                for_each_method(|gpu, method| {
                    let cases: Vec<Case> = (0..50)
                        .map(|index| Case::new(method, numbers(10_000 * seed + 99 * index + 50, 7)))
                        .collect();
                    decodes(gpu, method, &cases);
                });
            });
        }
    });
}

#[test]
fn a_damaged_chunk_does_not_affect_its_neighbours() {
    for_each_method(|gpu, method| {
        let good = Case::new(method, numbers(50_000, 3));
        let (input, room) = good.inputs().next().unwrap();
        let mut damaged = input.to_vec();
        match method {
            Method::Lz4 => damaged.truncate(input.len() / 2),
            // Another magic number.
            _ => damaged[0] ^= 0xff,
        }
        let done = gpu.decode(method, &[(input, room), (&damaged, room), (input, room)]);
        assert_decoded(&done[0], &good.chunk, &format!("{method:?}, before"));
        assert_decoded(&done[2], &good.chunk, &format!("{method:?}, after"));
        assert!(
            done[1].status != SUCCESS || done[1].size != room as u64,
            "{method:?}: {} bytes, status {}",
            done[1].size,
            done[1].status
        );
    });
}

/// nvCOMP does not promise to withstand hostile bytes, so this tests the version that is installed.
#[test]
fn chunks_damaged_at_random_leave_their_neighbours_and_margins_intact() {
    for_each_method(|gpu, method| {
        let mut state = 7_u32;
        let mut random = |below: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % below
        };
        let good = Case::new(method, numbers(20_000, 3));
        let (input, room) = good.inputs().next().unwrap();
        let damaged: Vec<Vec<u8>> = (0..500)
            .map(|_| {
                let mut bytes = input.to_vec();
                for _ in 0..1 + random(4) {
                    let place = random(bytes.len());
                    bytes[place] = random(256) as u8;
                }
                if random(4) == 0 {
                    bytes.truncate(1 + random(input.len()));
                }
                bytes
            })
            .collect();
        let inputs: Vec<(&[u8], usize)> = damaged
            .iter()
            .flat_map(|bytes| [(&bytes[..], room), (input, room)])
            .collect();
        for pair in gpu.decode(method, &inputs).chunks(2) {
            let margin = &pair[0].memory[room..];
            assert!(
                margin.iter().all(|&byte| byte == Gpu::BEFORE),
                "{method:?} writes beyond its room"
            );
            assert_decoded(&pair[1], &good.chunk, &format!("{method:?}, neighbour"));
        }
    });
}

#[test]
fn a_chunk_that_needs_more_than_its_room_stays_inside_it() {
    for_each_method(|gpu, method| {
        let good = Case::new(method, numbers(50_000, 3));
        let (input, room) = good.inputs().next().unwrap();
        let short = room / 2 / ALIGNMENT * ALIGNMENT;
        let done = gpu.decode(method, &[(input, room), (input, short), (input, room)]);
        assert_decoded(&done[0], &good.chunk, &format!("{method:?}, before"));
        assert_decoded(&done[2], &good.chunk, &format!("{method:?}, after"));
        assert!(done[1].status != SUCCESS || done[1].size != room as u64);
        let margin = &done[1].memory[short..];
        assert!(
            margin.iter().all(|&byte| byte == Gpu::BEFORE),
            "{method:?} writes beyond its room"
        );
    });
}

#[test]
fn an_empty_batch_does_nothing() {
    for_each_method(|gpu, method| {
        assert!(gpu.decode(method, &[]).is_empty());
    });
}

#[test]
fn a_batch_with_an_unaligned_array_is_refused() {
    for_each_method(|gpu, method| {
        let batch = Batch {
            inputs: 64 + 4,
            input_sizes: 64,
            outputs: 64,
            output_rooms: 64,
            output_sizes: 64,
            statuses: 64,
            chunks: 1,
            max_decoded: 100,
            temp: 64,
            temp_bytes: 0,
        };
        // SAFETY: refused before any address is used.
        let refused = unsafe { gpu.nvcomp.decode(method, &batch, gpu.stream) };
        assert_eq!(
            refused.unwrap_err().cause,
            "an array for nvCOMP is not aligned"
        );
    });
}

#[test]
fn the_library_is_of_a_known_version() {
    if let Some(gpu) = Gpu::open() {
        assert!(gpu.nvcomp.version() >= [5, 1, 0], "{:?}", gpu.nvcomp);
    }
}
