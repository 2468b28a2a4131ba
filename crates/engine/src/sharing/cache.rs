//! The size of the last-level caches, from sysfs.

use std::fs;
use std::path::Path;

/// Bytes of the last-level caches of all processors; `None` if the system does not report them.
pub(super) fn last_level() -> Option<u64> {
    last_level_in("/sys/devices/system/cpu".as_ref())
}

fn last_level_in(processors: &Path) -> Option<u64> {
    // Each processor lists a cache that it shares.
    let mut caches: Vec<Cache> = Vec::new();
    for entry in fs::read_dir(processors).ok()?.flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("cpu"));
        if number.is_none_or(|number| number.parse::<u32>().is_err()) {
            continue;
        }
        let of_cpu = fs::read_dir(entry.path().join("cache"));
        let found = of_cpu.into_iter().flatten().flatten();
        for cache in found.filter_map(|index| Cache::read(&index.path())) {
            if !caches.contains(&cache) {
                caches.push(cache);
            }
        }
    }
    let last = caches.iter().map(|cache| cache.level).max()?;
    let of_last = caches.iter().filter(|cache| cache.level == last);
    Some(of_last.map(|cache| cache.bytes).sum())
}

#[derive(PartialEq, Eq)]
struct Cache {
    level: u32,
    bytes: u64,
    shared_by: String,
}

impl Cache {
    fn read(folder: &Path) -> Option<Cache> {
        let text = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let size = text("size")?;
        let (digits, unit) = size.trim().split_at(size.trim().len().checked_sub(1)?);
        let shift = match unit {
            "K" => 10,
            "M" => 20,
            "G" => 30,
            _ => return None,
        };
        if text("type")?.trim() == "Instruction" {
            return None;
        }
        Some(Cache {
            level: text("level")?.trim().parse().ok()?,
            bytes: digits.parse::<u64>().ok()?.checked_shl(shift)?,
            shared_by: text("shared_cpu_list")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(root: &Path, cpu: u32, level: u32, kind: &str, size: &str, shared_by: &str) {
        let folder = root.join(format!("cpu{cpu}/cache/index{level}"));
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in [
            ("level", level.to_string().as_str()),
            ("type", kind),
            ("size", size),
            ("shared_cpu_list", shared_by),
        ] {
            fs::write(folder.join(name), format!("{text}\n")).unwrap();
        }
    }

    #[test]
    fn a_cache_that_processors_share_counts_once() {
        let root = tempfile::tempdir().unwrap();
        for (cpu, package) in [(0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")] {
            cache(root.path(), cpu, 2, "Unified", "2048K", &cpu.to_string());
            cache(root.path(), cpu, 3, "Unified", "105M", package);
        }
        fs::create_dir(root.path().join("cpufreq")).unwrap();
        assert_eq!(last_level_in(root.path()), Some(210 << 20));
    }

    #[test]
    fn a_system_that_reports_no_caches_has_no_size() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(last_level_in(root.path()), None);
        cache(root.path(), 0, 3, "Unified", "much", "0");
        assert_eq!(last_level_in(root.path()), None);
        assert_eq!(last_level_in(&root.path().join("absent")), None);
    }
}
