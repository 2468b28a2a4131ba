//! Turns an order into parts for workers: checks it, finds kinds of memory, chooses routes, plans.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use super::Order;
use super::choose::{Chooser, Chosen, Load};
use super::transfer::{Arrivals, Part};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::file::File;
use crate::file::position::Operation;
use crate::memory::Memory;
use crate::options::{Options, RouteName};
use crate::plan::{self, Extent, LEAST_RANGES, Plan, Rows};
use crate::routes::fault::{Faults, Faulty};

/// The rows whose residency in the page cache is taken for that of all.
const SAMPLES: usize = 16;

pub(super) struct Prepared {
    pub parts: Vec<Part>,
    pub requested: RouteName,
    pub block: u64,
    pub durable: bool,
    /// The options that come from the tuned profile.
    pub tuned: Options,
    /// Why the request does not follow its options, or the profile.
    pub note: Option<Cow<'static, str>>,
    threads: usize,
    /// The most workers of the file that are to be at work for all such requests.
    pub most_in_turn: Option<usize>,
}

impl Prepared {
    /// The most workers that can find work.
    pub(crate) fn lanes(&self) -> usize {
        let blocks: usize = self.parts.iter().map(|p| p.plan.blocks.len()).sum();
        self.threads.min(blocks).max(1)
    }

    fn add(&mut self, choice: Chosen, memory: Memory, plan: Plan, faults: Option<&Arc<Faults>>) {
        match choice.tuned {
            Ok(options) => self.tuned = self.tuned.or(options),
            Err(why) => self.note = self.note.take().or(Some(Cow::Owned(why))),
        }
        self.threads = self.threads.max(choice.threads);
        self.block = self.block.max(choice.cut.block);
        let route = match faults {
            None => choice.route,
            Some(faults) => Arc::new(Faulty {
                inner: choice.route,
                faults: Arc::clone(faults),
            }),
        };
        let counts = choice.counts && plan.is_in_file_order();
        self.parts.push(Part {
            plan,
            memory,
            route,
            direct: choice.direct,
            queue_depth: choice.queue_depth,
            slots: choice.slots,
            coverage: choice.coverage.filter(|_| faults.is_none()),
            mappings: OnceLock::new(),
            next: AtomicUsize::new(0),
            reading: choice.reading,
            arrivals: counts.then(Arrivals::default),
        });
    }
}

/// The choice, memory and plan for rows that are read from the page cache into slots, for one allocation
/// of a GPU. `None` if the order asks for anything else, or is not valid: its ranges are then planned,
/// and checked, one by one.
fn plan_of_rows(
    engine: &Engine,
    file: &File,
    order: &Order<'_>,
    options: &Options,
) -> Result<Option<(Chosen, Memory, Plan)>> {
    let is_read = order.operation == Operation::Read;
    let is_long = order.extents.len() >= LEAST_RANGES;
    let first = order.extents.first().filter(|_| is_read && is_long);
    let Some(first) = first.filter(|first| first.length > 0 && first.memory != 0) else {
        return Ok(None);
    };
    let memory = match &order.memory {
        Some(memory) => memory.clone(),
        None => Memory::at(first.memory)?,
    };
    let (Some(_), Some(range)) = (&memory.context, &memory.range) else {
        return Ok(None);
    };
    let Some(all) = Rows::of(order.extents) else {
        return Ok(None);
    };
    let end_of = |rows: &Rows| rows.last().memory + rows.first.length as usize;
    let is_inside = |rows: &Rows| range.start <= rows.first.memory && end_of(rows) <= range.end;
    let end_of_file = all.last().map_or(0, |rows| rows.last().end());
    if !all.iter().all(is_inside) || end_of_file > file.size()? {
        return Ok(None);
    }
    let samples: Vec<Extent> = (0..SAMPLES)
        .map(|i| {
            let rows = all[all.len() * i / SAMPLES];
            rows.row(rows.count * i as u64 / SAMPLES as u64)
        })
        .collect();
    let choice = Chooser {
        engine,
        file,
        operation: order.operation,
        memory: &memory,
        options,
        load: Load::of_rows(&all),
        background: order.background,
    }
    .choose(&samples)?;
    if !choice.copies_out {
        return Ok(None);
    }
    let plan = plan::build_rows(&all, choice.cut)?;
    Ok(Some((choice, memory, plan)))
}

pub(super) fn merged(engine: &Engine, file: &File, call: Options) -> Options {
    call.or(file.options()).or(engine.outer_options())
}

/// The note of a host-memory request whose options name another route.
pub(super) fn note_for_host(options: &Options) -> Option<&'static str> {
    match options.route {
        None | Some(RouteName::Auto | RouteName::Host) => None,
        Some(_) => Some("host memory uses the host route"),
    }
}

pub(super) fn prepare(engine: &Engine, file: &File, mut order: Order<'_>) -> Result<Prepared> {
    let options = merged(engine, file, order.options);
    options.check()?;
    file.must_allow(order.operation)?;
    let requested = options.route.unwrap_or(RouteName::Auto);
    let mut prepared = Prepared {
        parts: Vec::new(),
        requested,
        block: 0,
        durable: options.durable.unwrap_or(false),
        tuned: Options::default(),
        note: None,
        threads: 1,
        most_in_turn: None,
    };
    let faults = order.faults.take().map(Faults::new).map(Arc::new);
    if let Some((choice, memory, plan)) = plan_of_rows(engine, file, &order, &options)? {
        prepared.add(choice, memory, plan, faults.as_ref());
        return Ok(prepared);
    }
    check_ranges(file, order.operation, order.extents)?;
    for MemoryGroup {
        memory,
        extents,
        starts,
    } in by_memory(order.extents, order.memory)?
    {
        let choice = Chooser {
            engine,
            file,
            operation: order.operation,
            memory: &memory,
            options: &options,
            load: Load::of(&extents),
            background: order.background,
        }
        .choose(&extents)?;
        if memory.context.is_none() {
            let note = note_for_host(&options).map(Cow::Borrowed);
            prepared.note = prepared.note.or(note);
        }
        if choice.coverage.is_some() && order.background {
            prepared.most_in_turn = Some(choice.threads);
        }
        let plan = plan::build(extents, choice.cut, &starts)?;
        prepared.add(choice, memory, plan, faults.as_ref());
    }
    Ok(prepared)
}

/// Checks that a read lies within the file as it is now, and that ranges of a write do not overlap. A
/// file that shrinks later makes the read fail.
fn check_ranges(file: &File, operation: Operation, extents: &[Extent]) -> Result<()> {
    let some = || extents.iter().filter(|e| e.length > 0);
    if some().any(|e| e.memory == 0) {
        return Err(Error::invalid("the buffer is a null pointer"));
    }
    some().try_for_each(Extent::check)?;
    if operation == Operation::Write {
        return refuse_overlap(extents);
    }
    if some().next().is_none() {
        return Ok(());
    }
    let size = file.size()?;
    match some().find(|e| e.end() > size) {
        Some(past) => {
            Err(Error::end_of_file(past.end(), size).at(file.path(), past.offset, past.length))
        }
        None => Ok(()),
    }
}

fn refuse_overlap(extents: &[Extent]) -> Result<()> {
    match Extent::overlap(extents) {
        Some(offset) => Err(Error::invalid(format!(
            "two ranges of one write overlap in the file at offset {offset}"
        ))
        .remedy("write overlapping ranges by separate calls, in the intended order")),
        None => Ok(()),
    }
}

/// Extents in one kind of memory, or on one GPU.
struct MemoryGroup {
    memory: Memory,
    extents: Vec<Extent>,
    /// Where the allocations of the GPU begin, if there are several.
    starts: BTreeSet<usize>,
}

/// Groups extents by their memory. Queries the driver once for an allocation that neighbours share.
fn by_memory(extents: &[Extent], buffer: Option<Memory>) -> Result<Vec<MemoryGroup>> {
    // A buffer that begins in host memory is host memory throughout. One on a GPU may be made of several
    // allocations.
    if let Some(memory) = buffer.filter(|memory| {
        let range = memory.range.as_ref();
        memory.context.is_none() || range.is_some_and(|range| are_inside(extents, range))
    }) {
        let some = extents.iter().filter(|extent| extent.length > 0);
        let group = MemoryGroup {
            memory,
            extents: some.copied().collect(),
            starts: BTreeSet::new(),
        };
        let has_any = !group.extents.is_empty();
        return Ok(has_any.then_some(group).into_iter().collect());
    }
    let mut groups: Vec<MemoryGroup> = Vec::new();
    let mut known: Option<(std::ops::Range<usize>, usize)> = None;
    for extent in extents.iter().filter(|e| e.length > 0) {
        if let Some((range, index)) = &known
            && range.contains(&extent.memory)
            && extent.memory + extent.length as usize <= range.end
        {
            groups[*index].extents.push(*extent);
            continue;
        }
        let memory = Memory::at(extent.memory)?;
        let same = |group: &MemoryGroup| group.memory.same_place(&memory);
        let index = match groups.iter().position(same) {
            Some(index) => index,
            None => {
                groups.push(MemoryGroup {
                    memory: memory.clone(),
                    extents: Vec::with_capacity(extents.len()),
                    starts: BTreeSet::new(),
                });
                groups.len() - 1
            }
        };
        let group = &mut groups[index];
        group.extents.push(*extent);
        if let (Some(_), Some(range)) = (&memory.context, &memory.range) {
            group.starts.insert(range.start);
        }
        known = memory.range.clone().map(|range| (range, index));
    }
    Ok(groups)
}

fn are_inside(extents: &[Extent], range: &Range<usize>) -> bool {
    extents.iter().all(|extent| {
        let end = extent.memory.checked_add(extent.length as usize);
        extent.memory >= range.start && end.is_some_and(|end| end <= range.end)
    })
}
