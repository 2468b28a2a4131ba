//! Virtual datasets, taken apart and read, against what HDF5 itself reads.

mod common;
#[path = "common/execute.rs"]
mod execute;
#[path = "common/no_cache.rs"]
mod no_cache;
#[path = "common/selections.rs"]
mod selections;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use common::{Locked, Opened, Setting, lock};
use execute::{execute, native_read};
use no_cache::NoCache;
use penstock_array::{ElementMapping, MemoryLayout, MemorySize, Run, Selection, StoredSize};
use penstock_hdf5::dataset::{ByteOrder, DatasetInfo, ElementType, FileType};
use penstock_hdf5::{Resolution, SourcePart, Store, resolve};
use penstock_sys::hdf5::{H5F_ACC_RDONLY, H5F_ACC_RDWR, H5S_ALL};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use selections::{destination, selected, selection};

/// The folder of the virtual datasets, and their names by what becomes of them.
fn samples(locked: &Locked) -> (PathBuf, &'static [(String, String, String)]) {
    static LIST: OnceLock<Vec<(String, String, String)>> = OnceLock::new();
    let folder = locked.setting.folder.join("virtual datasets");
    let list = LIST.get_or_init(|| {
        fs::create_dir(&folder).unwrap();
        locked
            .setting
            .script_named("virtual.py", &[folder.as_os_str()]);
        let list = fs::read_to_string(folder.join("virtual")).unwrap();
        list.lines()
            .map(|line| {
                let mut words = line.split(' ').map(str::to_owned);
                let mut next = || words.next().unwrap();
                (next(), next(), next())
            })
            .collect()
    });
    (folder, list)
}

fn of_kind<'a>(locked: &'a Locked, kind: &str) -> Vec<(String, Opened<'a>)> {
    let (folder, list) = samples(locked);
    list.iter()
        .filter(|sample| sample.2 == kind)
        .map(|(file, dataset, _)| {
            let opened = locked
                .setting
                .open_with(&folder.join(file), dataset, H5F_ACC_RDONLY);
            (format!("{file} {dataset}"), opened)
        })
        .collect()
}

/// Elements of 4 bytes, whose order is put right after the reading.
fn item(element: &FileType) -> Option<ElementMapping> {
    (element.size() == StoredSize(4)).then(|| ElementMapping::whole(MemorySize(4)))
}

fn info(setting: &Setting, opened: &Opened<'_>) -> Arc<DatasetInfo> {
    // SAFETY: the caller holds the lock.
    let session = unsafe { setting.session() };
    Arc::new(DatasetInfo::read(&session, opened.dataset).unwrap())
}

fn take_apart(
    setting: &Setting,
    opened: &Opened<'_>,
    info: &Arc<DatasetInfo>,
    selection: &Selection,
    destination: &MemoryLayout,
) -> Result<Resolution, String> {
    // SAFETY: the caller holds the lock.
    let session = unsafe { setting.session() };
    resolve(
        &session,
        opened.dataset,
        info,
        selection,
        destination,
        (&item, &NoCache),
    )
    .map_err(|error| error.to_string())
}

fn whole(
    setting: &Setting,
    opened: &Opened<'_>,
    info: &Arc<DatasetInfo>,
) -> Result<Resolution, String> {
    let dense = MemoryLayout::dense(&info.shape, MemorySize(4)).unwrap();
    take_apart(setting, opened, info, &Selection::all(&info.shape), &dense)
}

/// Each part writes only into memory that no other part writes into.
fn read(parts: &[SourcePart], memory: &mut [u8]) {
    let mut taken = vec![false; memory.len()];
    for part in parts {
        let mut one = vec![0xa5; memory.len()];
        let mut other = vec![0x5a; memory.len()];
        for memory in [&mut one, &mut other] {
            match &part.store {
                Store::File(file) => {
                    let path = file.path();
                    file.verify(&fs::metadata(&path).unwrap()).unwrap();
                    execute(
                        &part.info,
                        &part.plan,
                        &fs::read(&path).unwrap(),
                        &[],
                        memory,
                    );
                }
                Store::Memory(given) => execute(&part.info, &part.plan, &[], given, memory),
                Store::None => execute(&part.info, &part.plan, &[], &[], memory),
            }
        }
        let is_big = match part.info.element.form() {
            ElementType::Integer(integer) => integer.order == ByteOrder::Big,
            other => panic!("{other:?}"),
        };
        for at in 0..memory.len() {
            if one[at] == other[at] {
                assert!(!taken[at], "byte {at} is written twice");
                taken[at] = true;
                memory[at] = one[at];
            }
        }
        if is_big {
            for at in (0..memory.len())
                .filter(|at| one[*at] == other[*at])
                .step_by(4)
            {
                memory[at..at + 4].reverse();
            }
        }
    }
}

fn natively(setting: &Setting, opened: &Opened<'_>, info: &DatasetInfo) -> Option<Vec<u8>> {
    // SAFETY: the caller holds the lock. It keeps HDF5 from printing its errors.
    let _quiet = unsafe { setting.session() };
    let mut all = vec![0; info.bytes().unwrap() as usize];
    native_read(setting, opened, H5S_ALL, H5S_ALL, &mut all).then_some(all)
}

const UNTOUCHED: u8 = 0xee;

#[derive(Clone, Debug)]
struct Reading {
    selection: Selection,
    destination: MemoryLayout,
}

fn readings(shape: &[u64]) -> impl Strategy<Value = Reading> + use<> {
    let gaps = prop_oneof![Just(vec![0]), prop::collection::vec(0..9u64, 4)];
    let backwards = prop_oneof![Just(0u8), any::<u8>()];
    (selection(shape.to_vec()), gaps, backwards).prop_map(|(selection, gaps, backwards)| {
        let shape = selection.shape().unwrap();
        Reading {
            destination: destination(&shape, 4, &gaps, backwards),
            selection,
        }
    })
}

fn expected(all: &[u8], shape: &[u64], reading: &Reading) -> Vec<u8> {
    let mut memory = vec![UNTOUCHED; reading.destination.length as usize];
    for (source, position) in selected(&reading.selection, shape) {
        let places = position.iter().zip(&reading.destination.strides);
        let ahead: i64 = places.map(|(at, stride)| *at as i64 * stride).sum();
        let target = (reading.destination.base as i64 + ahead) as usize;
        memory[target..target + 4].copy_from_slice(&all[source as usize * 4..][..4]);
    }
    memory
}

#[test]
fn every_selection_of_a_virtual_dataset_is_what_hdf5_reads() {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    for (name, opened) in of_kind(&locked, "parts") {
        let info = info(setting, &opened);
        // First without HDF5 having opened any source.
        let before = whole(setting, &opened, &info).unwrap();
        assert!(matches!(before, Resolution::Parts(_)), "{name}: {before:?}");
        let all = natively(setting, &opened, &info).unwrap();
        let config = Config {
            cases: 150,
            failure_persistence: None,
            ..Config::default()
        };
        let check = |reading: Reading| {
            let Reading {
                selection,
                destination,
            } = &reading;
            let made = take_apart(setting, &opened, &info, selection, destination);
            let Ok(Resolution::Parts(parts)) = made else {
                panic!("{name}: {made:?}");
            };
            let mut memory = vec![UNTOUCHED; destination.length as usize];
            read(&parts, &mut memory);
            prop_assert!(memory == expected(&all, &info.shape, &reading), "{}", name);
            Ok(())
        };
        TestRunner::new(config)
            .run(&readings(&info.shape), check)
            .unwrap();
    }
}

#[test]
fn a_position_of_two_runs_gets_the_element_of_the_later_run() {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    for (name, opened) in of_kind(&locked, "parts") {
        let info = info(setting, &opened);
        let all = natively(setting, &opened, &info).unwrap();
        let elements: u64 = info.shape.iter().product();
        let length = elements / 2;
        let run = |start, position| Run {
            start,
            position,
            length,
        };
        let reading = Reading {
            selection: Selection::Runs(vec![run(elements - length, 1), run(0, 0)]),
            destination: MemoryLayout::dense(&[length + 1], MemorySize(4)).unwrap(),
        };
        let (selection, destination) = (&reading.selection, &reading.destination);
        let made = take_apart(setting, &opened, &info, selection, destination);
        let Ok(Resolution::Parts(parts)) = made else {
            panic!("{name}: {made:?}");
        };
        let mut memory = vec![UNTOUCHED; destination.length as usize];
        read(&parts, &mut memory);
        assert!(memory == expected(&all, &info.shape, &reading), "{name}");
    }
}

#[test]
fn sources_of_every_layout_are_read_or_left_to_hdf5() {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    for (name, opened) in of_kind(&locked, "any") {
        let info = info(setting, &opened);
        let made = whole(setting, &opened, &info);
        let all = natively(setting, &opened, &info);
        match (made, all) {
            (Ok(Resolution::Parts(parts)), Some(all)) => {
                let mut memory = vec![UNTOUCHED; all.len()];
                read(&parts, &mut memory);
                assert!(memory == all, "{name}");
            }
            (Ok(Resolution::Hdf5(_)) | Err(_), None) => {}
            (made, all) => panic!("{name}: {made:?}, HDF5 reads {all:?}"),
        }
    }
}

#[test]
fn a_dataset_may_be_its_own_source_where_that_comes_to_an_end() {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    for (name, opened) in of_kind(&locked, "view") {
        let info = info(setting, &opened);
        // HDF5 reads it too, but never closes the file again.
        let Ok(Resolution::Parts(parts)) = whole(setting, &opened, &info) else {
            panic!("{name}");
        };
        let mut memory = vec![UNTOUCHED; 2 * 6 * 4];
        read(&parts, &mut memory);
        let row: Vec<u8> = (0..6i32).flat_map(i32::to_le_bytes).collect();
        assert_eq!(memory, row.repeat(2), "{name}");
    }
}

#[test]
fn what_only_hdf5_reads_is_left_to_it_with_a_reason() {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    for (name, opened) in of_kind(&locked, "hdf5") {
        let info = info(setting, &opened);
        match whole(setting, &opened, &info) {
            Ok(Resolution::Hdf5(reason)) => println!("{name}: {reason}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn elements_outside_the_source_are_an_error_and_the_others_are_read() {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    for (name, opened) in of_kind(&locked, "outside") {
        let info = info(setting, &opened);
        let error = whole(setting, &opened, &info).unwrap_err();
        assert!(error.contains("dataset /v: its source /x in "), "{error}");
        assert!(error.contains("and its mapping is for shape ["), "{error}");
        let mut few = info.shape.clone();
        few[0] = 2;
        let inside = Selection::Grid(few.iter().map(|n| penstock_array::Axis::all(*n)).collect());
        let dense = MemoryLayout::dense(&few, MemorySize(4)).unwrap();
        let made = take_apart(setting, &opened, &info, &inside, &dense);
        assert_eq!(
            made.is_ok(),
            !name.starts_with("outside"),
            "{name}: {made:?}"
        );
    }
}

#[test]
fn a_selection_of_another_rank_than_the_source_is_an_error() {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    for (name, opened) in of_kind(&locked, "refused") {
        let info = info(setting, &opened);
        let error = whole(setting, &opened, &info).unwrap_err();
        assert!(
            error.contains("has shape [12, 9], and its mapping is for shape [9]"),
            "{name}: {error}"
        );
    }
}

#[test]
fn a_cycle_is_an_error_that_names_the_datasets() {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    let cycles = of_kind(&locked, "cycle");
    assert_eq!(cycles.len(), 6);
    for (name, opened) in cycles {
        let info = info(setting, &opened);
        let error = whole(setting, &opened, &info).unwrap_err();
        assert!(error.contains("in a circle: /v -> /v"), "{name}: {error}");
        assert!(error.contains("cycle_"), "{name}: {error}");
    }
}

#[test]
fn nothing_of_hdf5s_stays_open() {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    let (folder, _) = samples(&locked);
    let opened = setting.open_with(&folder.join("rows.h5"), "v", H5F_ACC_RDONLY);
    let info = info(setting, &opened);
    let links = || -> BTreeSet<PathBuf> {
        let all = fs::read_dir("/proc/self/fd").unwrap().flatten();
        all.filter_map(|entry| fs::read_link(entry.path()).ok())
            .filter(|path| path.file_name().is_some_and(|name| name == "row3.h5"))
            .collect()
    };
    assert!(links().is_empty());
    let Ok(Resolution::Parts(parts)) = whole(setting, &opened, &info) else {
        panic!();
    };
    assert_eq!(parts.len(), 7);
    let Store::File(third) = &parts[3].store else {
        panic!("{:?}", parts[3].store);
    };
    assert_eq!(third.name(), folder.join("row3.h5"));
    // A file that is replaced meanwhile is still the one that was planned for.
    let kept = folder.join("kept");
    fs::rename(folder.join("row3.h5"), &kept).unwrap();
    fs::write(folder.join("row3.h5"), "another").unwrap();
    assert!(third.verify(&fs::metadata(third.path()).unwrap()).is_ok());
    assert!(
        third
            .verify(&fs::metadata(folder.join("row3.h5")).unwrap())
            .is_err()
    );
    fs::rename(&kept, folder.join("row3.h5")).unwrap();
    drop(parts);
    assert!(links().is_empty());
}

#[test]
fn sources_are_found_beside_the_file_that_a_link_leads_to() {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    let (folder, _) = samples(&locked);
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("link.h5");
    std::os::unix::fs::symlink(folder.join("rows.h5"), &link).unwrap();
    // The folder of the link precedes.
    fs::copy(folder.join("row4.h5"), elsewhere.path().join("row2.h5")).unwrap();
    let opened = setting.open_with(&link, "v", H5F_ACC_RDONLY);
    let info = info(setting, &opened);
    let Ok(Resolution::Parts(parts)) = whole(setting, &opened, &info) else {
        panic!();
    };
    let mut memory = vec![UNTOUCHED; info.bytes().unwrap() as usize];
    read(&parts, &mut memory);
    assert!(memory == natively(setting, &opened, &info).unwrap());
    assert_eq!(memory[2 * 160..3 * 160], memory[4 * 160..5 * 160]);
}

#[test]
fn a_source_that_is_open_for_writing_is_read_as_it_is_now() {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    let (folder, _) = samples(&locked);
    let hdf5 = &setting.hdf5;
    let path = folder.join("blocks.h5");
    // As HDF5 does, sources are opened for writing with the virtual dataset's file.
    let opened = setting.open_with(&path, "v", H5F_ACC_RDWR);
    let information = info(setting, &opened);
    let before = natively(setting, &opened, &information).unwrap();
    let mut changed = before.clone();
    changed.iter_mut().for_each(|byte| *byte ^= 0x33);
    let write = |bytes: &[u8]| {
        // SAFETY: the caller holds the lock; the bytes are those of all elements.
        let status = unsafe {
            let element = (hdf5.H5Dget_type)(opened.dataset);
            let bytes = bytes.as_ptr().cast();
            let status = (hdf5.H5Dwrite)(opened.dataset, element, H5S_ALL, H5S_ALL, 0, bytes);
            (hdf5.H5Tclose)(element);
            status
        };
        assert!(status >= 0);
    };
    write(&changed);
    let Ok(Resolution::Parts(parts)) = whole(setting, &opened, &information) else {
        panic!();
    };
    assert!(parts.iter().all(|part| part.info.file.is_writable));
    let mut memory = vec![UNTOUCHED; before.len()];
    read(&parts, &mut memory);
    assert!(memory == changed);
    write(&before);
}
