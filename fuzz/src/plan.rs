//! Plans: whatever a dataset and a selection are, each selected element goes once to its place, and
//! nothing outside the chunk is read and nothing outside the destination written.

use std::collections::BTreeMap;
use std::sync::Arc;

use penstock_array::{
    Axis, ChunkJob, ChunkTable, ElementMapping, FileRange, MemoryLayout, Plan, PlanJob, Selection,
    Source, StoredArray, StridedBox, Window,
};
use penstock_engine::file::position::Operation;

use crate::cases;
use crate::draw::Draw;
use crate::model::{self, Element, MOST};

/// Of a selection that is too large for its model, as many chunks and boxes are looked at.
const FIRST: usize = 32;

pub fn fuzz_planner(data: &[u8]) {
    let draw = &mut Draw(data);
    let Some(array) = cases::array(draw) else {
        return;
    };
    let selection = cases::selection(draw, &array.shape);
    let element = cases::element(draw, array.element);
    let comes_out = selection.shape().unwrap_or_default();
    let memory = cases::memory(draw, &comes_out, element.target);
    let limit = draw.number();
    let planned = Plan::new(&array, selection.clone(), &memory, element, Operation::Read);
    let Ok(plan) = planned else {
        return;
    };
    let plan = Arc::new(plan);
    plan.touched();
    let case = Case {
        array: &array,
        table: match &array.source {
            Source::Chunks(table) => Some(table),
            _ => None,
        },
        selection: &selection,
        memory: &memory,
        element,
    };
    if model::count(&selection) <= MOST.into() {
        case.check_all(&plan);
        check_windows(&plan, limit);
    } else if is_quick(&selection) && has_work_everywhere(&plan) {
        for work in plan.works().take(FIRST).flatten() {
            match &work {
                PlanJob::Chunk(job) => case.check_bounds(job.boxes(&plan).take(FIRST), Some(job)),
                PlanJob::Fill(job) => case.check_bounds(job.boxes(&plan).take(FIRST), None),
            }
        }
    }
}

/// Whether a chunk of the selection takes few steps to plan, however many elements it has.
fn is_quick(selection: &Selection) -> bool {
    match selection {
        Selection::Runs(_) => false,
        Selection::Grid(axes) => axes.iter().all(|axis| match axis {
            Axis::Slab { count, block, .. } => *count.min(block) <= MOST,
            Axis::Runs(_) => true,
        }),
    }
}

/// Where unwritten chunks are left as they are, the next work may be many chunks away.
fn has_work_everywhere(plan: &Arc<Plan>) -> bool {
    plan.fill().is_some() || !matches!(plan.source(), Source::Chunks(_) | Source::Missing)
}

struct Case<'a> {
    array: &'a StoredArray,
    table: Option<&'a ChunkTable>,
    selection: &'a Selection,
    memory: &'a MemoryLayout,
    element: ElementMapping,
}

/// Offsets in bytes, of an element in its chunk (or of contiguous data in the whole of them), and
/// in the destination.
type Moves = Vec<(u64, u64)>;

/// What becomes of one chunk.
#[derive(Debug, PartialEq)]
enum Outcome {
    Read(Moves),
    /// Only the places in the destination.
    Filled(Vec<u64>),
    Failed,
}

impl Case<'_> {
    fn check_all(&self, plan: &Arc<Plan>) {
        let mut expected = self.expected(plan);
        let mut failures = expected
            .values()
            .filter(|outcome| **outcome == Outcome::Failed)
            .count();
        let mut whole: Moves = Vec::new();
        for work in plan.works() {
            let (chunk, found) = match work {
                Err(_) => {
                    assert!(failures > 0, "an error too many");
                    failures -= 1;
                    continue;
                }
                Ok(PlanJob::Fill(job)) => {
                    self.check_bounds(job.boxes(plan), None);
                    let moves = self.moves(job.boxes(plan));
                    let mut targets: Vec<u64> = moves.iter().map(|at| at.1).collect();
                    targets.sort_unstable();
                    (job.chunk, Outcome::Filled(targets))
                }
                Ok(PlanJob::Chunk(job)) => {
                    self.check_job(plan, &job);
                    let mut moves = self.moves(job.boxes(plan));
                    moves.sort_unstable();
                    if self.table.is_none() {
                        let start = job.address - self.start();
                        whole.extend(moves.iter().map(|(from, to)| (start + from, *to)));
                        continue;
                    }
                    (job.chunk, Outcome::Read(moves))
                }
            };
            if let (None, Outcome::Filled(targets)) = (self.table, &found) {
                whole.extend(targets.iter().map(|to| (0, *to)));
                continue;
            }
            let wanted = expected.remove(&chunk);
            assert_eq!(wanted, Some(found), "chunk {chunk}");
        }
        assert_eq!(failures, 0, "an error is missing");
        if self.table.is_none() {
            whole.sort_unstable();
            let wanted = match expected.remove(&0) {
                Some(Outcome::Read(moves)) => moves,
                Some(Outcome::Filled(targets)) => targets.iter().map(|to| (0, *to)).collect(),
                _ => Vec::new(),
            };
            assert_eq!(whole, wanted);
        }
        expected.retain(|_, outcome| *outcome != Outcome::Failed);
        assert!(expected.is_empty(), "{expected:?} is missing");
    }

    /// Where contiguous data start.
    fn start(&self) -> u64 {
        match self.array.source {
            Source::Contiguous { offset } => offset,
            _ => 0,
        }
    }

    /// What is to become of each touched chunk; all other data count as chunk 0.
    fn expected(&self, plan: &Arc<Plan>) -> BTreeMap<u64, Outcome> {
        let mut moves: BTreeMap<u64, Moves> = BTreeMap::new();
        let mut elements = model::elements(self.selection, &self.array.shape);
        if let Selection::Runs(_) = self.selection {
            // Of several elements with one position the last one is read.
            let last: BTreeMap<Vec<u64>, Element> = elements
                .into_iter()
                .map(|element| (element.position.clone(), element))
                .collect();
            elements = last.into_values().collect();
        }
        for element in elements {
            let steps = element.position.iter().zip(&self.memory.strides);
            let offset: i128 = steps.map(|(p, s)| i128::from(*p) * i128::from(*s)).sum();
            let target = (i128::from(self.memory.base) + offset) as u64;
            let (chunk, inside) = match self.table {
                Some(table) => {
                    let sides = table.grid().chunk();
                    let axes = || element.index.iter().zip(sides);
                    let place: Vec<u64> = axes().map(|(at, side)| at / side).collect();
                    let inside: Vec<u64> = axes().map(|(at, side)| at % side).collect();
                    (table.grid().number(&place), model::number(&inside, sides))
                }
                None => (0, model::number(&element.index, &self.array.shape)),
            };
            let move_ = (inside * self.element.source, target);
            moves.entry(chunk).or_default().push(move_);
        }
        moves
            .into_iter()
            .filter_map(|(chunk, moves)| Some((chunk, self.outcome(plan, chunk, moves)?)))
            .collect()
    }

    fn outcome(&self, plan: &Plan, chunk: u64, mut moves: Moves) -> Option<Outcome> {
        moves.sort_unstable();
        let is_stored = match (self.table, plan.source()) {
            (Some(table), _) => match table.find(chunk) {
                Err(_) => return Some(Outcome::Failed),
                Ok(None) => false,
                Ok(Some(stored)) => {
                    let is_bare = self.array.unfiltered_edges && table.grid().is_partial(chunk);
                    let filters = self.array.pipeline.filters.len();
                    let left_out = |at: usize| at < 32 && stored.mask >> at & 1 == 1;
                    // Filters from the 33rd on are always applied, also at the edges.
                    let is_plain = (0..filters).all(|at| left_out(at) || is_bare && at < 32);
                    if is_plain && stored.size != plan.decoded_size() {
                        return Some(Outcome::Failed);
                    }
                    true
                }
            },
            (None, Source::Missing) => false,
            (None, _) => true,
        };
        if is_stored {
            return Some(Outcome::Read(moves));
        }
        plan.fill()?;
        let mut targets: Vec<u64> = moves.iter().map(|at| at.1).collect();
        targets.sort_unstable();
        Some(Outcome::Filled(targets))
    }

    fn moves(&self, boxes: impl Iterator<Item = StridedBox>) -> Moves {
        let mut moves = Vec::new();
        for strided in boxes {
            let before = moves.len();
            for run in strided.runs() {
                moves.extend((0..run.elements).map(|i| {
                    (
                        run.chunk + i * self.element.source,
                        run.memory + i * self.element.target,
                    )
                }));
            }
            assert_eq!((moves.len() - before) as u64, strided.elements());
        }
        moves
    }

    /// Every box lies inside the chunk, if there is one, and inside the destination.
    fn check_bounds(&self, boxes: impl Iterator<Item = StridedBox>, job: Option<&ChunkJob>) {
        for strided in boxes {
            assert!(strided.run > 0 && strided.axes.iter().all(|dim| dim.count > 0));
            let mut source = i128::from(strided.chunk);
            let (mut low, mut high) = (i128::from(strided.memory), i128::from(strided.memory));
            for dim in &strided.axes {
                let steps = i128::from(dim.count - 1);
                source += steps * i128::from(dim.chunk_stride);
                let reach = steps * i128::from(dim.memory_stride);
                *(if reach < 0 { &mut low } else { &mut high }) += reach;
            }
            let run = i128::from(strided.run);
            source += run * i128::from(self.element.source);
            high += run * i128::from(self.element.target);
            assert!(low >= 0 && high <= self.memory.length.into());
            if let Some(job) = job {
                assert!(source <= job.decoded_size.into());
            }
        }
    }

    fn check_job(&self, plan: &Arc<Plan>, job: &ChunkJob) {
        self.check_bounds(job.boxes(plan), Some(job));
        let (low, high) = job.span;
        let moves = self.moves(job.boxes(plan));
        assert_eq!(job.elements, moves.len() as u64);
        assert_eq!(Some(low), moves.iter().map(|at| at.0).min());
        let last = moves.iter().map(|at| at.0 + self.element.source).max();
        assert_eq!(Some(high), last);
        assert!(low < high && high <= job.decoded_size);
        if let Some(target) = job.whole(plan) {
            let end = target.checked_add(job.decoded_size);
            assert!(end.is_some_and(|end| end <= self.memory.length));
        }
        if let Some(table) = self.table {
            let first = plan.first_element(job.chunk);
            assert!(
                first
                    .iter()
                    .zip(table.grid().shape())
                    .all(|(at, size)| at < size)
            );
        }
        if !job.is_plain {
            return;
        }
        assert_eq!(job.stored_size, job.decoded_size);
        if self.element.is_whole() {
            for strided in job.boxes(plan) {
                for range in job.ranges(plan, &strided) {
                    let end = job.address + job.stored_size;
                    assert!(job.address <= range.offset && range.offset + range.length <= end);
                    self.check_external(plan, range);
                }
            }
        }
    }

    /// The parts of a range of external data follow each other, and only the end may be missing.
    fn check_external(&self, plan: &Plan, range: FileRange) {
        let mut done = 0;
        let Source::Segments(slots) = &self.array.source else {
            return;
        };
        for (slot, part) in plan.segment_ranges(range) {
            assert!(part.length > 0 && part.offset >= slots[slot].offset);
            assert_eq!(part.memory, range.memory + done);
            done += part.length;
        }
        let room: u128 = slots
            .iter()
            .map(|slot| slot.size.map_or(1 << 64, u128::from))
            .sum();
        let inside = room.saturating_sub(range.offset.into());
        assert_eq!(u128::from(done), inside.min(range.length.into()));
    }
}

/// The portions hold the same work, none of them too large.
fn check_windows(plan: &Arc<Plan>, limit: u64) {
    let (mut chunks, mut failures) = (Vec::new(), 0);
    for work in plan.works() {
        match work {
            Ok(PlanJob::Chunk(job)) => chunks.push(job.chunk),
            Ok(PlanJob::Fill(job)) => chunks.push(job.chunk),
            Err(_) => failures += 1,
        }
    }
    let mut found = Vec::new();
    for window in plan.windows(limit) {
        let Ok(window) = window else {
            failures -= 1;
            continue;
        };
        let Window { jobs, fills, .. } = &window;
        let is_alone = jobs.len() + fills.len() == 1;
        let bytes = window.stored_bytes.saturating_add(window.decoded_bytes);
        assert!(is_alone || bytes <= limit);
        assert!(jobs.is_sorted_by_key(|job| job.address));
        found.extend(jobs.iter().map(|job| job.chunk));
        found.extend(fills.iter().map(|job| job.chunk));
    }
    found.sort_unstable();
    assert_eq!(found, chunks);
    assert_eq!(failures, 0);
}
