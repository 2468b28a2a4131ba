//! The settings of staged reads that earlier processes have found: a file for each GPU and length of
//! requests, in the folder of profiles.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::record::{FORMAT, check, text_of};
use super::{Gpu, Machine};
use crate::options::{MAX_THREADS, MIN_BLOCK};
use crate::staging::{Length, Setting};

/// The place of the setting of one GPU.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    path: PathBuf,
    gpu: Gpu,
    machine: Machine,
}

impl Kept {
    pub(super) fn new(folder: &Path, gpu: Gpu, length: Length) -> Kept {
        let of = gpu.pci_bus_id.replace(':', "_");
        Kept {
            path: folder.join(format!("staging-{of}-{}.json", length.name())),
            gpu,
            machine: Machine::here(),
        }
    }

    /// The stored setting, if one was found on this machine.
    pub(crate) fn load(&self) -> Option<Setting> {
        let text = text_of(&self.path).ok()??;
        let value: Value = serde_json::from_str(&text).ok()?;
        check(&value, &self.machine, Some(&self.gpu)).ok()?;
        let workers = value["threads"].as_u64()?;
        let fill = value["block"].as_u64()?;
        let is_valid = (1..=u64::from(MAX_THREADS)).contains(&workers) && fill >= MIN_BLOCK;
        is_valid.then_some(Setting {
            workers: workers as usize,
            fill,
        })
    }

    /// Replaces the stored setting. A failure only makes the next process explore again.
    pub(crate) fn store(&self, setting: Setting) {
        let value = json!({
            "format": FORMAT,
            "machine": self.machine.as_json(),
            "gpu": self.gpu.as_json(),
            "threads": setting.workers,
            "block": setting.fill,
        });
        let folder = self.path.parent().unwrap_or(Path::new("."));
        // A process that reads half of it finds no setting.
        let _ = std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&self.path, format!("{value:#}\n")));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn gpu(count: u64) -> Gpu {
        Gpu {
            name: "A GPU".to_owned(),
            pci_bus_id: "0000:3b:00.0".to_owned(),
            driver: "12.8".to_owned(),
            count,
        }
    }

    #[test]
    fn a_stored_setting_is_found_again_for_the_same_gpu_and_length() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("made");
        let setting = Setting {
            workers: 14,
            fill: 2 << 20,
        };
        let kept = Kept::new(&folder, gpu(2), Length::Long);
        assert_eq!(kept.load(), None);
        kept.store(setting);
        assert_eq!(kept.load(), Some(setting));
        assert_eq!(Kept::new(&folder, gpu(2), Length::Short).load(), None);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_file_of_a_few_kilobytes_is_not_read() {
        let root = tempfile::tempdir().unwrap();
        let kept = Kept::new(root.path(), gpu(1), Length::Long);
        std::os::unix::fs::symlink("/dev/zero", &kept.path).unwrap();
        assert_eq!(kept.load(), None);
    }

    #[test]
    fn a_setting_of_a_host_with_more_gpus_is_not_used() {
        let root = tempfile::tempdir().unwrap();
        let setting = Setting {
            workers: 14,
            fill: 2 << 20,
        };
        Kept::new(root.path(), gpu(8), Length::Long).store(setting);
        assert_eq!(Kept::new(root.path(), gpu(2), Length::Long).load(), None);
    }
}
