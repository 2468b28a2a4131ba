//! Prefixes that the environment gives, which HDF5 reads when it is loaded.

mod common;
#[path = "common/execute.rs"]
mod execute;
#[path = "common/no_cache.rs"]
mod no_cache;

use std::fs;
use std::sync::Arc;

use common::lock;
use execute::{execute, native_read};
use no_cache::NoCache;
use penstock_array::{ElementMapping, MemoryLayout, MemorySize, Plan, Selection};
use penstock_engine::file::position::Operation;
use penstock_hdf5::dataset::{DatasetInfo, Layout};
use penstock_hdf5::{Resolution, Store, resolve};
use penstock_sys::hdf5::{H5F_ACC_RDONLY, H5S_ALL};

#[test]
fn prefixes_of_the_environment_are_those_that_hdf5_uses() {
    for (name, folder) in [
        ("HDF5_VDS_PREFIX", "sources"),
        ("HDF5_EXTFILE_PREFIX", "raw"),
    ] {
        // SAFETY: this program has one test, and no other thread reads the environment yet.
        unsafe { std::env::set_var(name, format!("${{ORIGIN}}/{folder}")) };
    }
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    let folder = setting.folder.join("prefixes");
    fs::create_dir(&folder).unwrap();
    setting.script_named("virtual.py", &[folder.as_os_str(), "prefixes".as_ref()]);
    for (file, dataset) in [("v.h5", "v"), ("v.h5", "out"), ("outer.h5", "v")] {
        let opened = setting.open_with(&folder.join(file), dataset, H5F_ACC_RDONLY);
        // SAFETY: this test holds the lock.
        let session = unsafe { setting.session() };
        let info = Arc::new(DatasetInfo::read(&session, opened.dataset).unwrap());
        let all = Selection::all(&info.shape);
        let dense = MemoryLayout::dense(&info.shape, MemorySize(4)).unwrap();
        let mut memory = vec![0xee; info.bytes().unwrap() as usize];
        match &info.layout {
            Layout::External(slots) => {
                assert_eq!(slots[0].path, folder.join("raw/out.bin"));
                let plan = Plan::new(
                    &info.array(None).unwrap(),
                    all,
                    &dense,
                    ElementMapping::whole(MemorySize(4)),
                    Operation::Read,
                )
                .unwrap();
                execute(&info, &Arc::new(plan), &[], &[], &mut memory);
            }
            Layout::Virtual(_) => {
                let mapping = |_: &_| Some(ElementMapping::whole(MemorySize(4)));
                let made = resolve(
                    &session,
                    opened.dataset,
                    &info,
                    &all,
                    &dense,
                    (&mapping, &NoCache),
                )
                .unwrap();
                let parts = match made {
                    Resolution::Parts(parts) => parts,
                    // HDF5 does not return the prefix as it was before it was expanded.
                    Resolution::Hdf5(reason) => {
                        assert!(file == "outer.h5" && reason.contains("a prefix is set"));
                        continue;
                    }
                };
                let Store::File(source) = &parts[0].store else {
                    panic!("{:?}", parts[0].store);
                };
                assert_eq!(source.name(), folder.join("sources/row.h5"));
                let bytes = fs::read(source.path()).unwrap();
                execute(&parts[0].info, &parts[0].plan, &bytes, &[], &mut memory);
            }
            other => panic!("{other:?}"),
        }
        let mut expected = vec![0; memory.len()];
        assert!(native_read(
            setting,
            &opened,
            H5S_ALL,
            H5S_ALL,
            &mut expected
        ));
        assert!(memory == expected, "{file} {dataset}");
    }
}
