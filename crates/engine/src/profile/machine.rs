//! The properties of a machine that decide which options are best for it.

use serde_json::{Value, json};

use crate::file::page_size;
use crate::gpu::Driver;
use crate::sharing;

/// The properties that also matter for transfers of host memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    /// Cores that the process may use.
    pub cores: u64,
    pub page_size: u64,
}

/// A GPU and the number of GPUs that share its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gpu {
    pub name: String,
    pub pci_bus_id: String,
    /// The CUDA version of the driver and, if it is known, the version of the kernel module.
    pub driver: String,
    /// The GPUs of the host, even those that the process does not see.
    pub count: u64,
}

impl Machine {
    pub(crate) fn here() -> Machine {
        Machine {
            cores: std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
            page_size: page_size(),
        }
    }

    pub(crate) fn as_json(&self) -> Value {
        json!({ "cores": self.cores, "page_size": self.page_size })
    }

    /// How the machine of a profile differs from this one.
    pub(crate) fn difference(&self, made_on: &Value) -> Option<String> {
        let numbers = [("cores", self.cores), ("page_size", self.page_size)];
        numbers
            .iter()
            .find_map(|(key, here)| differs(key, &json!(here), &made_on[*key]))
    }
}

impl Gpu {
    pub(crate) fn of(driver: &Driver, ordinal: i32) -> Gpu {
        let version = driver.version().map(|(a, b)| format!("{a}.{b}"));
        let module = std::fs::read_to_string("/sys/module/nvidia/version").ok();
        let module = module.map(|text| format!(" ({})", text.trim()));
        Gpu {
            name: driver.device_name(ordinal).unwrap_or_default(),
            pci_bus_id: driver
                .pci_bus_id(ordinal)
                .unwrap_or_else(|| format!("gpu{ordinal}")),
            driver: version.unwrap_or_default() + &module.unwrap_or_default(),
            count: sharing::gpus_of_host(driver) as u64,
        }
    }

    pub(crate) fn as_json(&self) -> Value {
        json!({
            "name": self.name,
            "pci_bus_id": self.pci_bus_id,
            "driver": self.driver,
            "count": self.count,
        })
    }

    /// As [`Machine::difference`].
    pub(crate) fn difference(&self, made_on: &Value) -> Option<String> {
        let here = self.as_json();
        ["name", "pci_bus_id", "driver", "count"]
            .iter()
            .find_map(|key| differs(&format!("GPU {key}"), &here[*key], &made_on[*key]))
    }
}

fn differs(what: &str, here: &Value, there: &Value) -> Option<String> {
    let what = what.replace('_', " ");
    (here != there).then(|| format!("it was made with {what} {there}, but this machine has {here}"))
}
