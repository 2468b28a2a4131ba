//! Transfers of an array that a caller has described, without a library of its format.

use std::sync::Arc;

use penstock_codec::convert::TypeConversion;
use penstock_engine::error::{Error, Result};
use penstock_engine::file::File;
use penstock_engine::file::position::Operation;
use penstock_engine::file::side::Direct;
use penstock_engine::options::{Choice, Options};

use super::bound::{BoundPlan, PlanFile};
use super::encoded::{Collected, Collector};
use super::plain::extents;
use super::sink::Sink;
use super::submit::{Beforehand, PreparedTransfer, SubmitOptions, TransferKind, submit};
use crate::{
    ElementMapping, MemorySide, MemorySize, Plan, Selection, Source, StoredArray, in_dataset,
};

/// A transfer between a stored array and memory.
pub struct ArrayTransfer<'a> {
    /// The stored array.
    pub array: &'a StoredArray,
    /// The selected elements.
    pub selection: Selection,
    /// Shape of the array in memory.
    pub shape: &'a [u64],
    /// Bytes from one element to the next along each dimension; `None` for C order.
    pub strides: Option<&'a [i64]>,
    /// Conversion of numbers: from file to memory in a read, from memory to file in a write.
    pub conversion: TypeConversion,
    /// Size of an element in memory.
    pub element: MemorySize,
    /// The options of the call.
    pub options: Options,
}

impl<'a> ArrayTransfer<'a> {
    /// Describes a transfer of unconverted elements with default options. The array in memory has
    /// this shape, in C order.
    pub fn new(array: &'a StoredArray, selection: Selection, shape: &'a [u64]) -> Self {
        ArrayTransfer {
            array,
            selection,
            shape,
            strides: None,
            conversion: TypeConversion::Copy,
            element: MemorySize(array.element.0),
            options: Options::default(),
        }
    }

    /// Reads from the file into memory that starts at the lowest address of the elements, and waits
    /// for the end.
    pub fn read_into(self, file: Arc<File>, memory: &mut [u8]) -> Result<()> {
        let prepared = self.read(file)?;
        let (needed, given) = (prepared.length, memory.len());
        if (given as u64) < needed {
            let cause = format!("the elements take {needed} bytes, but the memory has {given}");
            return Err(Error::invalid(cause).remedy("pass memory for all selected elements"));
        }
        let first = (memory.as_mut_ptr() as usize).wrapping_sub(prepared.low as usize);
        // SAFETY: the memory is as long as the plan needs, and borrowed until the request has
        // finished.
        unsafe { submit(prepared, first, None, SubmitOptions::default())? }.finish()?;
        Ok(())
    }

    /// Prepares a read from the file.
    pub fn read(self, file: Arc<File>) -> Result<PreparedTransfer> {
        let (plan, memory) = self.plan(Operation::Read)?;
        let path = file.path().to_owned();
        let bound = self.bind(plan, Some(file));
        let kind = TransferKind::Read(vec![bound]);
        Ok(prepared(Operation::Read, kind, &memory, path))
    }

    /// Prepares a write into storage that the array has already, without filters. It writes the
    /// selected elements and no other byte, so that other processes can write other elements at the
    /// same time.
    pub fn write_in_place(self, file: Arc<File>) -> Result<PreparedTransfer> {
        let name = &self.array.name;
        self.check_written()?;
        let is_stored = matches!(
            self.array.source,
            Source::Contiguous { .. } | Source::Chunks(_)
        );
        if !is_stored || !self.array.pipeline.filters.is_empty() {
            let cause = "its elements have no place in the file before they are written";
            return Err(in_dataset(Error::invalid(cause), name));
        }
        let (plan, memory) = self.plan(Operation::Write)?;
        let path = file.path().to_owned();
        let opened = Arc::clone(&file);
        let bound = self.bind(plan, Some(file));
        let kind = match extents(&bound, false)? {
            Some(ranges) => TransferKind::Plain {
                file: opened,
                ranges,
                at_end: None,
            },
            None => TransferKind::Write(bound, Sink::InPlace),
        };
        Ok(prepared(Operation::Write, kind, &memory, path))
    }

    /// Prepares the encoding of whole chunks, which are collected in memory.
    pub fn encode(self) -> Result<(PreparedTransfer, Collected)> {
        let name = &self.array.name;
        self.check_written()?;
        let Source::Chunks(table) = &self.array.source else {
            return Err(in_dataset(Error::invalid("it has no chunks"), name));
        };
        let grid = table.grid().clone();
        let is_whole = self.selection.covers_chunks(grid.shape(), grid.chunk());
        if !self.selection.is_empty() && !is_whole {
            let cause = format!(
                "the selection cuts chunks of shape {:?}, which are encoded as a whole",
                grid.chunk()
            );
            let remedy = "select whole chunks, up to the edge of the array";
            return Err(in_dataset(Error::invalid(cause).remedy(remedy), name));
        }
        let (plan, memory) = self.plan(Operation::Write)?;
        let (collector, collected) = Collector::new(grid);
        let kind = if self.selection.is_empty() {
            TransferKind::Nothing
        } else {
            let bound = self.bind(plan, None);
            TransferKind::Write(bound, Sink::Chunks(Box::new(collector)))
        };
        let path = std::path::PathBuf::new();
        Ok((prepared(Operation::Write, kind, &memory, path), collected))
    }

    fn check_written(&self) -> Result<()> {
        self.selection.check(&self.array.shape)?;
        if self.selection.has_repeats() {
            Err(in_dataset(
                Error::invalid("elements are selected more than once"),
                &self.array.name,
            ))
        } else {
            Ok(())
        }
    }

    fn plan(&self, direction: Operation) -> Result<(Plan, MemorySide)> {
        let named = |error| in_dataset(error, &self.array.name);
        self.selection.check(&self.array.shape).map_err(named)?;
        let pipeline = &self.array.pipeline;
        let unknown = match direction {
            Operation::Read => pipeline.unknown(),
            Operation::Write => pipeline.unwritable(),
        };
        if let Some(filter) = unknown {
            let cause = format!("{filter} is not supported");
            return Err(named(Error::invalid(cause)));
        }
        let (selection, element) = (&self.selection, self.element);
        let memory = MemorySide::of_array(selection, self.shape, self.strides, element);
        let memory = memory.map_err(named)?;
        let (stored, in_memory) = (self.array.element, self.element);
        let mapping = match direction {
            Operation::Read => ElementMapping::of_read(stored, 0..stored.0, in_memory),
            Operation::Write => ElementMapping::of_write(in_memory, 0..in_memory.0, stored),
        };
        if self.conversion.size_after(mapping.source as usize) as u64 != mapping.target {
            let cause = format!(
                "elements of {} bytes in the file do not become {} bytes in memory",
                stored, in_memory
            );
            return Err(named(Error::invalid(cause)));
        }
        let selection = self.selection.clone();
        let plan = Plan::new(self.array, selection, &memory.layout, mapping, direction)?;
        Ok((plan, memory))
    }

    fn bind(&self, plan: Plan, file: Option<Arc<File>>) -> BoundPlan {
        let files = file.into_iter().map(PlanFile::from).collect();
        let direct = match self.options.direct.unwrap_or(Choice::Auto) {
            Choice::No => Direct::Never,
            Choice::Yes => Direct::Always,
            Choice::Auto => Direct::WhereCold,
        };
        BoundPlan::new(plan, files, self.conversion, direct)
    }
}

fn prepared(
    direction: Operation,
    kind: TransferKind,
    memory: &MemorySide,
    path: std::path::PathBuf,
) -> PreparedTransfer {
    PreparedTransfer {
        kind,
        direction,
        low: memory.low,
        length: memory.layout.length,
        path,
        beforehand: Beforehand::default(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use penstock_codec::{Filter, Pipeline};
    use penstock_engine::file::Access;

    use super::*;
    use crate::{Axis, ChunkGrid, ChunkTable, StoredChunk, StoredSize, TableBuilder};

    const SHAPE: [u64; 2] = [5, 6];

    fn array(source: Source, filters: &[u32]) -> StoredArray {
        let filters = filters.iter().map(|id| Filter::new(*id, &[4]));
        StoredArray {
            pipeline: Pipeline {
                filters: filters.collect(),
            },
            ..StoredArray::new("x", &SHAPE, StoredSize(2), source)
        }
    }

    fn transfer<'a>(
        array: &'a StoredArray,
        axes: [Axis; 2],
        shape: &'a [u64],
    ) -> ArrayTransfer<'a> {
        ArrayTransfer::new(array, Selection::Grid(axes.into()), shape)
    }

    fn run(prepared: PreparedTransfer, memory: &mut [u16]) -> Result<()> {
        let address = memory.as_mut_ptr() as usize;
        // SAFETY: the memory is as long as the transfer says, and no other code uses it.
        unsafe { submit(prepared, address, None, SubmitOptions::default())? }.finish()
    }

    fn open(path: &std::path::Path) -> Arc<File> {
        let access = Access {
            read: true,
            write: true,
            create: true,
            truncate: false,
        };
        Arc::new(File::open(path, access, Options::default()).unwrap())
    }

    fn grid() -> ChunkGrid {
        ChunkGrid::new(&SHAPE, &[2, 6]).unwrap()
    }

    #[test]
    fn a_column_is_written_without_the_bytes_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let table = ChunkTable::in_order(grid(), 7, 24, 100).unwrap();
        for source in [
            Source::Contiguous { offset: 7 },
            Source::Chunks(Arc::new(table)),
        ] {
            fs::write(&path, [0xee; 90]).unwrap();
            let file = open(&path);
            let array = array(source, &[]);
            let column = transfer(&array, [Axis::all(5), Axis::range(2, 1)], &[5, 1]);
            let mut memory = [1, 2, 3, 4, 5];
            run(
                column.write_in_place(Arc::clone(&file)).unwrap(),
                &mut memory,
            )
            .unwrap();
            let mut expected = [0xee; 90];
            for row in 0..5 {
                let at = 7 + row * 12 + 4;
                expected[at..at + 2].copy_from_slice(&(row as u16 + 1).to_ne_bytes());
            }
            assert_eq!(fs::read(&path).unwrap(), expected);
            let mut found = [0; 5];
            let column = transfer(&array, [Axis::all(5), Axis::range(2, 1)], &[5, 1]);
            run(column.read(file).unwrap(), &mut found).unwrap();
            assert_eq!(found, memory);
        }
    }

    #[test]
    fn encoded_chunks_are_written_at_the_addresses_that_the_caller_allocated() {
        let folder = tempfile::tempdir().unwrap();
        let file = open(&folder.path().join("x"));
        let none = TableBuilder::new(grid(), 1 << 20).finish();
        let empty = array(Source::Chunks(Arc::new(none)), &[2, 1]);
        let mut memory: Vec<u16> = (0..18).collect();
        let rows = transfer(&empty, [Axis::range(2, 3), Axis::all(6)], &[3, 6]);
        let (prepared, collected) = rows.encode().unwrap();
        run(prepared, &mut memory).unwrap();
        let chunks = Arc::new(collected.take());
        let listed: Vec<_> = chunks
            .list()
            .map(|(number, _, mask)| (number, mask))
            .collect();
        assert_eq!(listed, [(1, 0), (2, 0)]);
        let addresses = [500, 100];
        chunks
            .submit(&file, &addresses, Options::default())
            .unwrap()
            .finish()
            .unwrap();
        let mut builder = TableBuilder::new(grid(), 1 << 20);
        for ((number, bytes, mask), address) in chunks.list().zip(addresses) {
            let size = bytes.len() as u64;
            let stored = StoredChunk {
                address,
                size,
                mask,
            };
            builder.add_numbered(number, stored).unwrap();
        }
        let full = array(Source::Chunks(Arc::new(builder.finish())), &[2, 1]);
        let mut found = [0; 18];
        let rows = transfer(&full, [Axis::range(2, 3), Axis::all(6)], &[3, 6]);
        run(rows.read(file).unwrap(), &mut found).unwrap();
        assert_eq!(found[..], memory[..]);
        assert!(
            chunks
                .submit(&open(&folder.path().join("y")), &[1], Options::default())
                .is_err()
        );
    }

    #[test]
    fn memory_that_is_too_short_for_the_elements_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = open(&folder.path().join("x"));
        let array = array(Source::Contiguous { offset: 0 }, &[]);
        let rows = transfer(&array, [Axis::range(1, 2), Axis::all(6)], &[2, 6]);
        let error = rows.read_into(file, &mut [0; 23]).unwrap_err();
        assert!(error.to_string().contains("take 24 bytes"), "{error}");
    }

    #[test]
    fn parts_of_encoded_chunks_and_elements_without_a_place_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let none = Arc::new(TableBuilder::new(grid(), 100).finish());
        let filtered = array(Source::Chunks(none), &[1]);
        let cut = transfer(&filtered, [Axis::range(1, 2), Axis::all(6)], &[2, 6]);
        assert!(cut.encode().is_err());
        let whole = transfer(&filtered, [Axis::all(5), Axis::all(6)], &[5, 6]);
        let file = open(&folder.path().join("x"));
        assert!(whole.write_in_place(file).is_err());
    }
}
