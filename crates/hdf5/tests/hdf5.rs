//! Against a real HDF5: what it reads, plans read too.

mod common;
#[path = "common/execute.rs"]
mod execute;
#[path = "common/plans.rs"]
mod plans;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Opened, Setting, lock};
use execute::{execute, native_read};
use penstock_array::{
    ChunkTable, ElementMapping, MemoryLayout, MemorySize, Plan, Selection, Source, match_selections,
};
use penstock_hdf5::dataset::{
    ByteOrder, DatasetInfo, ElementType, Fill, FloatKind, Layout, MappedSelection, dataspace,
    read_chunk_table,
};
use penstock_hdf5::library::Session;
use penstock_sys::hdf5::{
    H5F_ACC_RDWR, H5F_ACC_SWMR_READ, H5S_ALL, H5S_SELECT_OR, H5S_SELECT_SET, Hdf5, hid_t,
};
use plans::read_plan;

/// A dataspace that is open as long as this lives.
struct Space<'a> {
    setting: &'a Setting,
    id: hid_t,
}

impl Drop for Space<'_> {
    fn drop(&mut self) {
        // SAFETY: the identifier is open and ours.
        unsafe { (self.setting.hdf5.H5Sclose)(self.id) };
    }
}

impl<'a> Space<'a> {
    fn of(setting: &'a Setting, opened: &Opened<'_>) -> Self {
        // SAFETY: takes the dataset's identifier and gives one of ours.
        let id = unsafe { (setting.hdf5.H5Dget_space)(opened.dataset) };
        assert!(id > 0);
        Space { setting, id }
    }

    fn simple(setting: &'a Setting, shape: &[u64]) -> Self {
        let most = std::ptr::null();
        // SAFETY: there are as many sizes as is said.
        let id =
            unsafe { (setting.hdf5.H5Screate_simple)(shape.len() as i32, shape.as_ptr(), most) };
        assert!(id > 0);
        Space { setting, id }
    }

    fn slab(
        self,
        operation: i32,
        start: &[u64],
        stride: &[u64],
        count: &[u64],
        block: &[u64],
    ) -> Self {
        // SAFETY: all lists are as long as the dataspace has dimensions.
        let status = unsafe {
            (self.setting.hdf5.H5Sselect_hyperslab)(
                self.id,
                operation,
                start.as_ptr(),
                stride.as_ptr(),
                count.as_ptr(),
                block.as_ptr(),
            )
        };
        assert!(status >= 0);
        self
    }

    fn points(self, points: &[[u64; 2]]) -> Self {
        // SAFETY: there are as many coordinates as is said.
        let status = unsafe {
            (self.setting.hdf5.H5Sselect_elements)(
                self.id,
                H5S_SELECT_SET,
                points.len(),
                points.as_ptr().cast(),
            )
        };
        assert!(status >= 0);
        self
    }

    fn offset(self, offset: &[i64]) -> Self {
        // SAFETY: there are as many offsets as the dataspace has dimensions.
        let status = unsafe { (self.setting.hdf5.H5Soffset_simple)(self.id, offset.as_ptr()) };
        assert!(status >= 0);
        self
    }
}

struct Known {
    info: DatasetInfo,
    table: Option<Arc<ChunkTable>>,
}

fn know(session: &Session<'_>, opened: &Opened<'_>) -> Known {
    let info = DatasetInfo::read(session, opened.dataset).unwrap();
    let table = match &info.layout {
        Layout::Chunked { .. } => {
            let table = read_chunk_table(session, opened.dataset, &info).unwrap();
            Some(Arc::new(table))
        }
        _ => None,
    };
    Known { info, table }
}

fn planned_read(
    setting: &Setting,
    known: &Known,
    opened: &Opened<'_>,
    plan: &Arc<Plan>,
    memory: &mut [u8],
) {
    let descriptor = known.info.file.descriptor.unwrap();
    let file = fs::read(format!("/proc/self/fd/{descriptor}")).unwrap();
    let mut given = Vec::new();
    if matches!(plan.source(), Source::Memory) {
        given = vec![0; known.info.bytes().unwrap() as usize];
        assert!(native_read(setting, opened, H5S_ALL, H5S_ALL, &mut given));
    }
    execute(&known.info, plan, &file, &given, memory);
}

/// Reads a selection by a plan and by HDF5 and compares.
fn compare(setting: &Setting, opened: &Opened<'_>, file: &Space<'_>, what: &str) {
    // SAFETY: the caller holds the lock.
    let session = unsafe { setting.session() };
    let known = know(&session, opened);
    let selection = dataspace::selection(&session, file.id).unwrap();
    let shape = selection.shape().unwrap();
    let size = MemorySize(known.info.element.size().0);
    let destination = MemoryLayout::dense(&shape, size).unwrap();
    let plan = read_plan(
        &known.info,
        known.table.clone(),
        selection,
        &destination,
        ElementMapping::whole(size),
    );
    let plan = Arc::new(plan.unwrap());
    let mut found = vec![0; destination.length as usize];
    let mut expected = found.clone();
    planned_read(setting, &known, opened, &plan, &mut found);
    if !expected.is_empty() {
        let memory = Space::simple(setting, &[shape.iter().product()]);
        assert!(native_read(
            setting,
            opened,
            memory.id,
            file.id,
            &mut expected
        ));
    }
    assert!(found == expected, "{what}: {shape:?} differs");
}

fn compare_all(kind: &str) {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    for (file, dataset) in setting.datasets(kind) {
        let opened = setting.open(&file, &dataset);
        // SAFETY: this test holds the lock.
        let info = DatasetInfo::read(&unsafe { setting.session() }, opened.dataset).unwrap();
        if info.is_null || info.element.only_hdf5().is_some() {
            continue;
        }
        let what = format!("{file} {dataset}");
        let whole = || Space::of(setting, &opened);
        compare(setting, &opened, &whole(), &what);
        if info.shape == [23, 17] {
            let strided = whole().slab(H5S_SELECT_SET, &[1, 2], &[3, 5], &[7, 3], &[1, 2]);
            compare(setting, &opened, &strided, &what);
            let shifted = whole()
                .slab(H5S_SELECT_SET, &[1, 2], &[3, 5], &[6, 2], &[2, 2])
                .offset(&[3, -1]);
            compare(setting, &opened, &shifted, &what);
            let joined = whole()
                .slab(H5S_SELECT_SET, &[0, 0], &[1, 1], &[1, 1], &[9, 7])
                .slab(H5S_SELECT_OR, &[5, 3], &[1, 1], &[1, 1], &[18, 13]);
            compare(setting, &opened, &joined, &what);
            let points = whole().points(&[[22, 16], [0, 0], [5, 5], [5, 6], [5, 5]]);
            compare(setting, &opened, &points, &what);
        }
    }
}

#[test]
fn numbers_of_every_layout_and_index_are_those_that_hdf5_reads() {
    compare_all("numbers");
}

#[test]
fn elements_of_every_type_are_those_that_hdf5_reads() {
    compare_all("types");
}

#[test]
fn a_virtual_dataset_is_placed_from_what_hdf5_has_read() {
    compare_all("virtual");
}

#[test]
fn a_selection_in_memory_is_honoured_as_by_hdf5() {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    let opened = setting.open("indexes_latest.h5", "chunks");
    let from = || Space::of(setting, &opened);
    let to = || Space::simple(setting, &[50, 3, 40]);
    let one = [1, 1];
    let joined = from()
        .slab(H5S_SELECT_SET, &[0, 0], &one, &one, &[4, 4])
        .slab(H5S_SELECT_OR, &[8, 8], &one, &one, &[4, 4]);
    let rows = from().slab(H5S_SELECT_SET, &[2, 1], &[2, 1], &[8, 4], &one);
    let thin = to().slab(
        H5S_SELECT_SET,
        &[1, 1, 3],
        &[3, 1, 2],
        &[8, 1, 4],
        &[1, 1, 1],
    );
    let blocks = to().slab(
        H5S_SELECT_SET,
        &[0, 0, 0],
        &[9, 1, 5],
        &[2, 2, 4],
        &[1, 1, 2],
    );
    for (file, memory) in [
        (&joined, &thin),
        (&rows, &thin),
        (&rows, &blocks),
        (&joined, &blocks),
    ] {
        // SAFETY: this test holds the lock.
        let session = unsafe { setting.session() };
        let known = know(&session, &opened);
        let (selection, destination) = match_selections(
            &dataspace::selection(&session, file.id).unwrap(),
            &known.info.shape,
            &dataspace::selection(&session, memory.id).unwrap(),
            &[50, 3, 40],
            MemorySize(4),
        )
        .unwrap();
        let table = known.table.clone();
        let plan = read_plan(
            &known.info,
            table,
            selection,
            &destination,
            ElementMapping::whole(MemorySize(4)),
        )
        .unwrap();
        let plan = Arc::new(plan);
        let mut found = vec![0; 50 * 3 * 40 * 4];
        let mut expected = found.clone();
        planned_read(setting, &known, &opened, &plan, &mut found);
        assert!(native_read(
            setting,
            &opened,
            memory.id,
            file.id,
            &mut expected
        ));
        assert!(found == expected);
        assert!(found.iter().any(|byte| *byte != 0));
    }
}

#[test]
fn element_types_are_told_apart() {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    let mut types = BTreeMap::new();
    for (file, dataset) in setting.datasets("types") {
        let opened = setting.open(&file, &dataset);
        // SAFETY: this test holds the lock.
        let info = DatasetInfo::read(&unsafe { setting.session() }, opened.dataset).unwrap();
        types.insert(dataset, info.element.form().clone());
    }
    let integer = |name: &str| match &types[name] {
        ElementType::Integer(i) => (i.size, i.order, i.signed, i.is_plain()),
        other => panic!("{name} is {other:?}"),
    };
    assert_eq!(integer("type_be_u4"), (4, ByteOrder::Big, false, true));
    assert_eq!(integer("type_le_i8"), (8, ByteOrder::Little, true, true));
    assert_eq!(integer("type_narrow"), (4, ByteOrder::Little, true, false));
    let float = |name: &str| match &types[name] {
        ElementType::Float(f) => (f.kind(), f.order),
        other => panic!("{name} is {other:?}"),
    };
    assert_eq!(float("type_be_f2"), (Some(FloatKind::F16), ByteOrder::Big));
    assert_eq!(float("type_be_f4"), (Some(FloatKind::F32), ByteOrder::Big));
    assert_eq!(float("type_be_f8"), (Some(FloatKind::F64), ByteOrder::Big));
    assert_eq!(
        float("type_bfloat16"),
        (Some(FloatKind::Bf16), ByteOrder::Little)
    );
    assert!(matches!(types["type_bool"], ElementType::Boolean(_)));
    let ElementType::Complex(complex) = &types["type_complex"] else {
        panic!("{:?}", types["type_complex"]);
    };
    assert_eq!(complex.part.kind(), Some(FloatKind::F32));
    let ElementType::Enum(colours) = &types["type_enum"] else {
        panic!("{:?}", types["type_enum"]);
    };
    let members: BTreeMap<_, _> = colours.members.iter().cloned().collect();
    let expected = [("RED".to_owned(), -1), ("GREEN".to_owned(), 7)];
    assert_eq!(members, BTreeMap::from(expected));
    assert!(matches!(
        types["type_string"],
        ElementType::String { size: 5, .. }
    ));
    assert!(matches!(
        types["type_opaque"],
        ElementType::Opaque { size: 3, .. }
    ));
    let ElementType::Array { dims, size, .. } = &types["type_array_of_shape"] else {
        panic!("{:?}", types["type_array_of_shape"]);
    };
    assert_eq!((dims.as_slice(), *size), ([2, 3].as_slice(), 12));
    let ElementType::Compound { fields, size } = &types["type_compound"] else {
        panic!("{:?}", types["type_compound"]);
    };
    let places: Vec<(&str, usize)> = fields.iter().map(|f| (f.name.as_str(), f.offset)).collect();
    assert_eq!(places, [("x", 0), ("y", 4), ("name", 12), ("cells", 15)]);
    assert_eq!(*size, 23);
    assert_eq!(
        types["type_vlen"].only_hdf5(),
        Some("variable-length strings")
    );
}

#[test]
fn types_that_came_with_hdf5_2_are_known() {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    if setting.hdf5.version().0 < 2 {
        eprintln!("skipped: HDF5 {:?} has none", setting.hdf5.version());
        return;
    }
    let read = |name: &str| {
        let opened = setting.open("types.h5", &format!("type_new_{name}"));
        // SAFETY: this test holds the lock.
        let session = unsafe { setting.session() };
        DatasetInfo::read(&session, opened.dataset)
            .unwrap()
            .element
            .form()
            .clone()
    };
    for (name, kind, order) in [
        ("FLOAT_F8E4M3", FloatKind::F8E4M3, ByteOrder::Little),
        ("FLOAT_F8E5M2", FloatKind::F8E5M2, ByteOrder::Little),
        ("FLOAT_BFLOAT16BE", FloatKind::Bf16, ByteOrder::Big),
    ] {
        let ElementType::Float(float) = read(name) else {
            panic!("{name} is {:?}", read(name));
        };
        assert_eq!((float.kind(), float.order), (Some(kind), order), "{name}");
    }
    let ElementType::Complex(complex) = read("COMPLEX_IEEE_F32BE") else {
        panic!("{:?}", read("COMPLEX_IEEE_F32BE"));
    };
    assert!(complex.native);
    assert_eq!(complex.part.kind(), Some(FloatKind::F32));
    assert_eq!(complex.part.order, ByteOrder::Big);
}

#[test]
fn what_is_known_of_file_and_layout_is_right() {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    let read = |opened: &Opened<'_>| {
        // SAFETY: this test holds the lock.
        DatasetInfo::read(&unsafe { setting.session() }, opened.dataset).unwrap()
    };
    let info = read(&setting.open("layouts.h5", "contiguous"));
    assert_eq!(info.name, "/contiguous");
    assert_eq!(info.file.name, setting.folder.join("layouts.h5"));
    assert_eq!(info.file.user_block, 512);
    assert_eq!(info.file.size, fs::metadata(&info.file.name).unwrap().len());
    assert!(info.file.is_plain && !info.file.is_writable && !info.file.is_swmr);
    let unwritten = read(&setting.open("layouts.h5", "unwritten"));
    assert!(matches!(
        unwritten.layout,
        Layout::Contiguous { offset: None }
    ));
    assert_eq!(unwritten.fill, Fill::Value(vec![9, 0, 0, 0]));
    assert!(read(&setting.open("layouts.h5", "null")).is_null);
    let external = read(&setting.open("layouts.h5", "external"));
    let Layout::External(slots) = &external.layout else {
        panic!("{:?}", external.layout);
    };
    assert_eq!(slots[1].path, setting.folder.join("part1.bin"));
    let places: Vec<_> = slots.iter().map(|s| (s.offset, s.size)).collect();
    assert_eq!(places, [(0, Some(544)), (16, Some(544)), (5, None)]);
    let edges = read(&setting.open("bare_edges.h5", "bare_edges"));
    let dont_filter_edges = true;
    assert!(
        matches!(edges.layout, Layout::Chunked { dont_filter_edges: d, .. } if d == dont_filter_edges)
    );
    let unlimited = read(&setting.open("indexes_latest.h5", "one_unlimited"));
    assert_eq!(unlimited.max_shape, [None, Some(17)]);
    let filtered = read(&setting.open("indexes_latest.h5", "gzip"));
    let ids: Vec<(u32, Vec<u32>)> = filtered
        .filters
        .iter()
        .map(|f| (f.id, f.values.clone()))
        .collect();
    assert_eq!(ids, [(2, vec![4]), (1, vec![4])]);
    let parts = read(&setting.open("virtual.h5", "virtual"));
    let Layout::Virtual(mappings) = &parts.layout else {
        panic!("{:?}", parts.layout);
    };
    assert_eq!(mappings.len(), 2);
    assert_eq!(
        (mappings[0].file.as_path(), mappings[0].dataset.as_str()),
        (Path::new("."), "contiguous")
    );
    let MappedSelection::Part { selection, .. } = &mappings[1].source else {
        panic!("{:?}", mappings[1].source);
    };
    assert_eq!(selection.shape(), Some(vec![9, 17]));
    assert_eq!(mappings[0].source, MappedSelection::All);
    let path = setting.folder.join("indexes_latest.h5");
    let swmr = read(&setting.open_with(&path, "chunks", H5F_ACC_SWMR_READ));
    assert!(swmr.file.is_swmr && !swmr.file.is_writable);
    let writable = read(&setting.open_with(&path, "chunks", H5F_ACC_RDWR));
    assert!(writable.file.is_writable);
}

#[test]
fn edge_chunks_stored_without_filters_are_plain() {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    let opened = setting.open("bare_edges.h5", "bare_edges");
    // SAFETY: this test holds the lock.
    let known = know(&unsafe { setting.session() }, &opened);
    let selection = Selection::all(&known.info.shape);
    let destination = MemoryLayout::dense(&known.info.shape, MemorySize(4)).unwrap();
    let plan = read_plan(
        &known.info,
        known.table,
        selection,
        &destination,
        ElementMapping::whole(MemorySize(4)),
    )
    .unwrap();
    let plain = Arc::new(plan)
        .windows(1 << 30)
        .flat_map(|w| w.unwrap().jobs)
        .filter(|j| j.is_plain)
        .count();
    // 6 x 4 chunks, of which the last row and column stick out.
    assert_eq!(plain, 9);
}

#[test]
fn a_private_copy_is_found_without_a_hint() {
    let Some(locked) = lock() else { return };
    let found = Hdf5::of_process(None).unwrap();
    let native = "H5T_NATIVE_INT_g";
    assert_eq!(found.version(), locked.setting.hdf5.version());
    // The same copy has the same identifiers.
    assert!(found.identifier(native).is_some_and(|id| id > 0));
    assert_eq!(
        found.identifier(native),
        locked.setting.hdf5.identifier(native)
    );
    assert_eq!(found.sec2_driver(), locked.setting.hdf5.sec2_driver());
    assert_eq!(found.identifier("H5T_NO_SUCH_TYPE_g"), None);
}

#[test]
fn a_failure_carries_hdf5s_own_words_and_prints_nothing() {
    let Some(locked) = lock() else { return };
    // SAFETY: this test holds the lock.
    let session = unsafe { locked.setting.session() };
    let text = DatasetInfo::read(&session, 12345).unwrap_err().to_string();
    assert!(
        text.contains("HDF5 cannot get the name of the dataset: "),
        "{text}"
    );
    assert!(text.contains("(H5"), "{text}");
}

#[test]
fn a_damaged_chunk_index_spoils_only_the_chunks_it_lies_about() {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    let opened = setting.open("indexes_earliest.h5", "chunks");
    // SAFETY: this test holds the lock.
    let session = unsafe { setting.session() };
    let known = know(&session, &opened);
    let first = known.table.unwrap().find(0).unwrap().unwrap();
    let path = setting.folder.join("damaged.h5");
    let mut bytes = fs::read(setting.folder.join("indexes_earliest.h5")).unwrap();
    let address = first.address.to_le_bytes();
    let places: Vec<usize> = (0..bytes.len() - 8)
        .filter(|at| bytes[*at..at + 8] == address)
        .collect();
    assert_eq!(places.len(), 1);
    bytes[places[0]..][..8].copy_from_slice(&(1u64 << 40).to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    let damaged = setting.open_with(&path, "chunks", 0);
    let table = know(&session, &damaged).table.unwrap();
    let text = table.find(0).unwrap_err().to_string();
    assert!(text.contains("the chunk at [0, 0]"), "{text}");
    assert!(table.find(1).unwrap().is_some());
}

/// The time that this thread has run: other tests that share the processors do not count.
fn processor_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call fills the struct.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(status, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn a_million_chunks_are_read_in_under_two_seconds() {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    for libver in ["earliest", "latest"] {
        let path = setting.folder.join(format!("million_{libver}.h5"));
        setting.script(&[OsStr::new("million"), path.as_os_str(), OsStr::new(libver)]);
        let opened = setting.open_with(&path, "million", 0);
        let start = processor_time();
        // SAFETY: this test holds the lock.
        let known = know(&unsafe { setting.session() }, &opened);
        let took = processor_time() - start;
        println!("{libver}: {took:?}");
        let table = known.table.unwrap();
        assert_eq!(table.len(), 1_000_000);
        assert!(took.as_secs_f64() < 2.0, "{libver}: {took:?}");
        let all = Selection::all(&known.info.shape);
        let dense = MemoryLayout::dense(&known.info.shape, MemorySize(4)).unwrap();
        let plan = read_plan(
            &known.info,
            Some(table),
            all,
            &dense,
            ElementMapping::whole(MemorySize(4)),
        )
        .unwrap();
        let plan = Arc::new(plan);
        let start = Instant::now();
        let jobs: usize = plan.windows(64 << 20).map(|w| w.unwrap().jobs.len()).sum();
        println!("planned: {:?}", start.elapsed());
        assert_eq!(jobs, 1_000_000);
    }
}
