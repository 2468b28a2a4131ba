"""What `penstock report` says of a machine on which one thing is not as it should be."""

from __future__ import annotations

import gzip

import pytest
from tests.machines import CUFILE_JSON, DRIVE, GPU, PORT, RELEASE, Machine, is_remedied

from penstock.diagnosis import Status

PARAMS = "/proc/driver/nvidia/params"
MULTIPATH = "/sys/module/nvme_core/parameters/multipath"
FULL_RATE = {
    GPU: {
        "bytes": 256 << 20,
        "to_gpu": 55.3e9,
        "from_gpu": 55.1e9,
        "reason": None,
        "generation": 5,
        "width": 16,
    }
}


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_machine_on_which_all_is_right_has_no_other_lines(machine):
    assert machine.not_ok(link_rates=FULL_RATE) == []


def test_every_line_that_is_not_ok_has_a_remedy(machine):
    for path in list(machine.root.iterdir()):
        machine.remove(path.name)
    machine.described["cuda"] |= {"available": False, "reason": "no driver", "devices": []}
    machine.described["cufile"] |= {"starts": False, "mode": None, "reason": "no CUDA"}
    lines = machine.not_ok()
    assert lines
    assert [line for line in lines if not line.remedy] == []


def test_no_line_is_ok_for_an_unknown_fact(machine):
    for path in list(machine.root.iterdir()):
        machine.remove(path.name)
    unknown = {line.name for line in machine.lines() if line.status is Status.UNKNOWN}
    assert unknown >= {
        "Kernel module",
        "cuda:0 BAR1",
        "cuda:0 PCIe link",
        "cuda:0 NUMA node",
        "Transparent huge pages",
        "Huge pages reserved",
        "CONFIG_PCI_P2PDMA",
        "NVIDIA driver",
        "Driver registry",
        "IOMMU",
        "Known to GPUDirect",
    }


# -- GPU ------------------------------------------------------------------------------------


def test_proprietary_kernel_module_is_reported(machine):
    machine.write(
        "/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul\n",
    )
    line = machine.line("Kernel module")
    is_remedied(line, Status.WARN, "nvidia-open")
    assert line.found == "580.65.06, proprietary"
    is_remedied(machine.line("NVIDIA driver"), Status.NO, "nvidia-open 565")


def test_driver_that_is_too_old_for_p2pdma_is_reported(machine):
    machine.write(
        "/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build\n",
    )
    assert machine.line("Kernel module").status is Status.OK
    is_remedied(machine.line("NVIDIA driver"), Status.NO, "565")


def test_bar1_smaller_than_the_memory_is_reported(machine):
    machine.write(
        f"{PORT}/{GPU}/resource",
        "0xb0000000 0xb0ffffff 0x40200\n0x24000000000 0x2400fffffff 0x14220c\n",
    )
    line = machine.line("cuda:0 BAR1")
    is_remedied(line, Status.WARN, "Resizable BAR")
    assert line.found == "256.0 MiB of 150.0 GiB"


def test_missing_lanes_are_reported(machine):
    machine.write(f"{PORT}/{GPU}/current_link_width", "8\n")
    line = machine.line("cuda:0 PCIe link")
    is_remedied(line, Status.WARN, "slot")
    assert line.found == "generation 5 x8 now, 5 x16 at most"


def test_link_at_rest_is_no_fault(machine):
    machine.write(f"{PORT}/{GPU}/current_link_speed", "2.5 GT/s PCIe\n")
    line = machine.line("cuda:0 PCIe link")
    assert line.status is Status.OK
    assert line.found.startswith("generation 1 x16 now, 5 x16")


@pytest.mark.parametrize("width", ["0", "63", "255", "many"])
def test_width_that_no_link_has_is_unknown(machine, width):
    machine.write(f"{PORT}/{GPU}/current_link_width", width)
    is_remedied(machine.line("cuda:0 PCIe link"), Status.UNKNOWN, "--measure")


def test_measured_rate_far_below_the_link_is_reported(machine):
    slow = {GPU: FULL_RATE[GPU] | {"from_gpu": 12.0e9}}
    line = machine.line("cuda:0 link rate", link_rates=slow)
    is_remedied(line, Status.WARN, "numactl")
    assert "12.0 GB/s from it" in line.found
    assert "63 GB/s" in line.meaning


def test_rate_that_could_not_be_measured_is_unknown(machine):
    failed = {GPU: FULL_RATE[GPU] | {"reason": "out of memory"}}
    line = machine.line("cuda:0 link rate", link_rates=failed)
    assert line.status is Status.UNKNOWN
    assert "out of memory" in line.found


def test_persistence_mode_that_is_off_is_reported(machine):
    machine.nvml["persistence"] = False
    is_remedied(machine.line("cuda:0 persistence mode"), Status.WARN, "nvidia-smi -pm 1")
    machine.nvml["persistence"] = None
    assert machine.line("cuda:0 persistence mode").status is Status.UNKNOWN


def test_gpu_that_cuda_does_not_offer_is_reported(machine):
    machine.described["cuda"]["devices"] = []
    is_remedied(machine.line(GPU, "GPU"), Status.NO, "CUDA_VISIBLE_DEVICES")


def test_machine_without_gpu_says_so_once_for_p2pdma(machine):
    machine.described["cuda"] |= {"available": False, "reason": "no libcuda", "devices": []}
    machine.remove(f"/sys/bus/pci/devices/{GPU}")
    is_remedied(machine.line("CUDA driver"), Status.NO, "Install the NVIDIA driver")
    assert [line.name for line in machine.lines() if line.section == "P2PDMA"] == ["P2PDMA"]


# -- host -----------------------------------------------------------------------------------


def test_little_memory_that_may_be_locked_is_reported(machine):
    machine.described["memory"]["memlock_limit"] = 8 << 20
    is_remedied(machine.line("Memory that may be locked"), Status.WARN, "ulimit -l")
    machine.write("/proc/self/status", "CapEff:\t0000000000004000\n")
    assert machine.line("Memory that may be locked").status is Status.OK


def test_io_uring_that_is_switched_off_is_reported_with_the_switch(machine):
    machine.described["io_uring"] = {"available": False, "reason": "Operation not permitted"}
    machine.write("/proc/sys/kernel/io_uring_disabled", "2\n")
    is_remedied(machine.line("io_uring"), Status.WARN, "kernel.io_uring_disabled=0: it is 2")
    machine.write("/proc/sys/kernel/io_uring_disabled", "0\n")
    is_remedied(machine.line("io_uring"), Status.WARN, "seccomp")


def test_huge_pages_that_are_forbidden_are_reported(machine):
    machine.write("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n")
    is_remedied(machine.line("Transparent huge pages"), Status.WARN, "echo madvise")


def test_kernel_without_cachestat_is_reported(machine):
    machine.described["cachestat"] = False
    is_remedied(machine.line("Kernel"), Status.WARN, "6.5")
    assert "samples of" in machine.line("In the page cache").found


# -- cuFile ---------------------------------------------------------------------------------


def test_cufile_that_is_not_there_is_reported(machine):
    machine.described["cufile"] |= {
        "available": False,
        "starts": False,
        "mode": None,
        "reason": "cuFile library: not found",
    }
    is_remedied(machine.line("cuFile"), Status.NO, "pip install nvidia-cufile")


def test_compatibility_mode_is_not_gpudirect(machine):
    machine.described["cufile"]["mode"] = "compat"
    is_remedied(machine.line("GPUDirect here"), Status.WARN, "P2PDMA")


def test_path_that_cufile_refuses_is_reported_with_its_reason(machine):
    machine.described["cufile"] |= {"mode": None, "reason": "CU_FILE_INTERNAL_ERROR"}
    line = machine.line("GPUDirect here")
    is_remedied(line, Status.NO, "udev")
    assert "CU_FILE_INTERNAL_ERROR" in line.found


def test_nvidia_fs_is_missed_only_where_p2pdma_is_not_complete(machine):
    assert machine.line("nvidia-fs").status is Status.OK
    machine.write(MULTIPATH, "Y\n")
    is_remedied(machine.line("nvidia-fs"), Status.WARN, "modprobe nvidia-fs")
    machine.write("/sys/module/nvidia_fs/version", "2.27.3\n")
    line = machine.line("nvidia-fs")
    assert (line.status, line.found) == (Status.OK, "loaded, 2.27.3")


# -- P2PDMA ---------------------------------------------------------------------------------


def test_kernel_that_is_too_old_is_reported(machine):
    machine.described["kernel"] = "5.15.0-140-generic"
    is_remedied(machine.line("Kernel version"), Status.NO, "6.2")


def test_kernel_without_p2pdma_is_reported(machine):
    machine.write(f"/boot/config-{RELEASE}", "CONFIG_PCI=y\n# CONFIG_PCI_P2PDMA is not set\n")
    is_remedied(machine.line("CONFIG_PCI_P2PDMA"), Status.NO, "CONFIG_PCI_P2PDMA=y")


def test_configuration_of_the_kernel_is_found_in_each_of_its_places(machine):
    machine.remove(f"/boot/config-{RELEASE}")
    assert machine.line("CONFIG_PCI_P2PDMA").status is Status.UNKNOWN
    machine.write("/proc/kallsyms", "0000000000000000 d p2pdma_pgmap_ops\n")
    assert machine.line("CONFIG_PCI_P2PDMA").found == "set, according to /proc/kallsyms"
    machine.write(f"/lib/modules/{RELEASE}/config", "CONFIG_PCI_P2PDMA=y\n")
    assert f"/lib/modules/{RELEASE}" in machine.line("CONFIG_PCI_P2PDMA").found
    machine.write("/proc/config.gz", gzip.compress(b"CONFIG_A=y\n# CONFIG_PCI_P2PDMA is not set\n"))
    assert machine.line("CONFIG_PCI_P2PDMA").found == "not set, according to /proc/config.gz"
    machine.write("/proc/config.gz", b"\x1f\x8bbroken")
    assert machine.line("CONFIG_PCI_P2PDMA").status is Status.OK


@pytest.mark.parametrize("key", ["RMForceStaticBar1", "RmForceDisableIomapWC"])
def test_registry_key_that_is_not_set_is_reported(machine, key):
    other = {
        "RMForceStaticBar1": "RmForceDisableIomapWC=1",
        "RmForceDisableIomapWC": "RMForceStaticBar1=1",
    }
    machine.write(PARAMS, f'RegistryDwords: "{other[key]}"\n')
    line = machine.line(key)
    is_remedied(line, Status.NO, "/etc/modprobe.d/nvidia-p2pdma.conf")
    assert line.found == "not set"
    machine.write(PARAMS, f'RegistryDwords: "{other[key]};{key}=0"\n')
    assert machine.line(key).found == "0"


def test_registry_key_that_is_in_the_way_is_reported(machine):
    machine.write(
        PARAMS, 'RegistryDwords: "RMForceStaticBar1=1;ForceP2P=0x11;RmForceDisableIomapWC=1"\n'
    )
    is_remedied(machine.line("ForceP2P"), Status.WARN, "Remove ForceP2P")


def test_registry_keys_are_required_on_x86_only(machine):
    machine.processor = "aarch64"
    machine.remove(PARAMS)
    assert "Driver registry" not in {line.name for line in machine.lines()}


def test_gpu_from_before_ampere_is_reported(machine):
    machine.described["cuda"]["devices"][0]["compute_capability"] = "7.5"
    is_remedied(machine.line("cuda:0 generation"), Status.NO, "nvidia-fs")


def test_gpu_memory_that_is_not_registered_is_reported(machine):
    machine.write(f"{PORT}/{GPU}/p2pmem/size", "0\n")
    is_remedied(machine.line("cuda:0 registered"), Status.NO, "CUDA program")


def test_iommu_that_translates_is_reported(machine):
    machine.write("/sys/class/iommu/dmar0/x", "")
    machine.write("/sys/kernel/iommu_groups/7/type", "DMA-FQ\n")
    machine.link(f"{PORT}/{GPU}/iommu_group", "/sys/kernel/iommu_groups/7")
    line = machine.line("IOMMU")
    is_remedied(line, Status.WARN, "intel_iommu=off")
    assert line.found == "on, DMA-FQ (intel_iommu=off)"
    machine.processor = "aarch64"
    assert machine.line("IOMMU").status is Status.OK


def test_iommu_that_passes_through_is_reported(machine):
    machine.write("/sys/class/iommu/dmar0/x", "")
    machine.write("/sys/kernel/iommu_groups/7/type", "identity\n")
    machine.link(f"{PORT}/{GPU}/iommu_group", "/sys/kernel/iommu_groups/7")
    machine.write("/proc/cmdline", "quiet iommu=pt\n")
    line = machine.line("IOMMU")
    is_remedied(line, Status.WARN, "off")
    assert line.found == "passthrough (iommu=pt)"


def test_nvme_multipath_is_reported(machine):
    machine.write(MULTIPATH, "Y\n")
    is_remedied(machine.line("NVMe multipath"), Status.NO, "nvme_core multipath=N")


def test_drives_over_a_network_are_no_drives_on_pcie(machine):
    machine.write(f"{PORT}/0000:17:00.0/nvme/nvme0/transport", "tcp\n")
    line = machine.line("NVMe drives")
    is_remedied(line, Status.NO, "RDMA")
    assert line.found == "nvme0 (tcp)"
    is_remedied(machine.line("Drives under the path"), Status.NO, "local NVMe")


def test_profile_that_is_left_out_is_reported_with_its_reason(machine):
    profile = machine.described["tuning"]["profiles"][0]
    profile |= {"state": "ignored", "reason": "it was made for 8 cores"}
    (line,) = machine.not_ok(link_rates=FULL_RATE)
    assert "8 cores" in line.found
    is_remedied(line, Status.WARN, "penstock tune")


@pytest.mark.parametrize(("level", "status"), [("raid0", Status.WARN), ("raid5", Status.NO)])
def test_array_under_the_path_is_reported(machine, level, status):
    array = "/sys/devices/virtual/block/md0"
    machine.write(f"{array}/md/level", f"{level}\n")
    machine.link(f"{array}/slaves/nvme0n1", DRIVE)
    machine.link("/sys/dev/block/9:0", array)
    machine.mount("ext4", "/dev/md0", "rw,data=ordered", "9:0")
    machine.write("/run/udev/data/b9:0", "E:ID_FS_TYPE=ext4\nE:ID_FS_USAGE=filesystem\n")
    line = machine.line("Drives under the path")
    is_remedied(line, status, "single drive")
    assert line.found == f"md0, {level}"
    assert f"md0 ({level}) on nvme0n1" in machine.line("File system").found


def test_switch_in_cufile_json_is_reported(machine):
    machine.write("/etc/cufile.json", CUFILE_JSON.replace('p2pdma": true', 'p2pdma": false'))
    is_remedied(machine.line("use_pci_p2pdma"), Status.NO, "CUFILE_USE_PCIP2PDMA")
    machine.environment["CUFILE_USE_PCIP2PDMA"] = "true"
    assert machine.line("use_pci_p2pdma").status is Status.OK


def test_cufile_that_does_not_know_p2pdma_is_reported(machine):
    machine.described["cufile"]["version"] = "1.11"
    is_remedied(machine.line("cuFile version"), Status.NO, "CUDA 12.8")
    machine.described["cufile"]["version"] = None
    is_remedied(machine.line("cuFile version"), Status.UNKNOWN, "CUDA 12.8")


def test_switch_of_nvme_drives_in_cufile_json_is_reported(machine):
    block = '"block": {"nvme": {"use_pci_p2pdma": false}}, "logging"'
    machine.write("/etc/cufile.json", CUFILE_JSON.replace('"logging"', block))
    is_remedied(machine.line("use_pci_p2pdma"), Status.NO, '"block": {"nvme"')


# -- path -----------------------------------------------------------------------------------


def test_missing_entry_of_udev_is_reported(machine):
    machine.remove("/run/udev/data/b259:1")
    line = machine.line("udev's entry")
    is_remedied(line, Status.NO, "E:ID_FS_USAGE=filesystem")
    assert line.found == "no /run/udev/data/b259:1"
    machine.write("/run/udev/data/b259:1", "E:ID_FS_TYPE=ext4\n")
    line = machine.line("udev's entry")
    is_remedied(line, Status.NO, "udevadm trigger")
    assert line.found.endswith("without ID_FS_USAGE")


@pytest.mark.parametrize("mode", ["journal", "writeback"])
def test_ext4_in_another_mode_than_ordered_is_reported(machine, mode):
    machine.mount("ext4", "/dev/nvme0n1p1", f"rw,data={mode}")
    line = machine.line("ext4 data mode")
    is_remedied(line, Status.NO, "-o data=ordered")
    assert line.found == f"data={mode}"


def test_default_mode_of_ext4_is_read_from_its_own_options(machine):
    machine.mount("ext4", "/dev/nvme0n1p1", "rw")
    assert machine.line("ext4 data mode").status is Status.UNKNOWN
    machine.write("/proc/fs/ext4/nvme0n1p1/options", "rw\ndelalloc\ndata=ordered\n")
    line = machine.line("ext4 data mode")
    is_remedied(line, Status.WARN, "-o data=ordered")
    assert line.found == "data=ordered, by default"


@pytest.mark.parametrize("kind", ["overlay", "tmpfs", "btrfs", "fuse.sshfs"])
def test_file_system_that_gpudirect_does_not_know_is_reported(machine, kind):
    machine.mount(kind, kind, "rw", "0:52")
    is_remedied(machine.line("Known to GPUDirect"), Status.NO, "XFS on NVMe")


def test_nfs_needs_rdma(machine):
    machine.mount("nfs4", "server:/data", "rw,vers=4.2,proto=tcp", "0:52")
    is_remedied(machine.line("Known to GPUDirect"), Status.NO, "proto=rdma")
    machine.mount("nfs4", "server:/data", "rw,vers=4.2,proto=rdma", "0:52")
    assert machine.line("Known to GPUDirect").status is Status.OK


@pytest.mark.parametrize(
    ("key", "entry"),
    [("filesystems", "ext4"), ("mounts", "{data}"), ("devices", "/dev/nvme0n1")],
)
def test_denylist_of_cufile_json_is_reported(machine, key, entry):
    entry = entry.format(data=machine.data.resolve())
    text = CUFILE_JSON.replace('"logging"', f'"denylist": {{"{key}": ["{entry}"]}}, "logging"')
    machine.write("/etc/cufile.json", text)
    line = machine.line("cuFile's denylist")
    is_remedied(line, Status.NO, "from the list")
    assert line.found == f"denylist.{key} in /etc/cufile.json lists {entry}"


def test_stripes_are_reported_part_by_part(machine):
    machine.mount("lustre", "mds@tcp:/scratch", "rw", "0:52")
    part = {
        "start": 0,
        "end": 1 << 20,
        "stripe_size": None,
        "stripe_count": 1,
        "targets": [],
        "stale": False,
    }
    large = part | {"start": 1 << 20, "end": None, "stripe_size": 4 << 20, "targets": [3, 0]}
    machine.described["file_system"] |= {"type": "lustre", "layout": [part, large]}
    assert machine.line("Stripes to 1.0 MiB").found == "on the metadata server"
    line = machine.line("Stripes to end of file")
    is_remedied(line, Status.WARN, "lfs setstripe -c -1")
    large["stripe_count"] = 2
    machine.described["file_system"]["layout"] = [large | {"start": 0}]
    line = machine.line("Stripes")
    assert (line.status, line.found) == (Status.OK, "2 target(s), 4.0 MiB, on 3, 0")
    machine.described["file_system"]["layout"] = []
    is_remedied(machine.line("Stripes"), Status.UNKNOWN, "lfs getstripe")


def test_file_system_without_direct_io_is_reported(machine):
    machine.described["file_system"]["direct_io"] = False
    is_remedied(machine.line("Direct I/O"), Status.WARN, "ext4")


def test_drive_at_another_processor_is_reported(machine):
    other = "/sys/devices/pci0000:97/0000:97:01.0/0000:98:00.0/nvme/nvme1/nvme1n1"
    machine.write(f"{other}/size", "1\n")
    machine.write("/sys/devices/pci0000:97/0000:97:01.0/0000:98:00.0/numa_node", "1\n")
    machine.link("/sys/dev/block/259:7", other)
    machine.mount("xfs", "/dev/nvme1n1", "rw", "259:7")
    line = machine.line("cuda:0 to nvme1n1")
    is_remedied(line, Status.WARN, "same node")
    assert line.found == "NUMA nodes 0 and 1, distance 21; at different host bridges"


def test_drives_that_are_as_far_share_a_line(machine):
    facts = machine.facts()
    (one,) = facts["storage"]["distances"]
    more = [one | {"drive": f"nvme{n}n1"} for n in (1, 2)]
    far = one | {"drive": "nvme3n1", "nodes": [0, 1], "numa_distance": 21, "common": None}
    storage = facts["storage"] | {"distances": [one, *more, far]}
    shown = machine.lines(storage=storage)
    names = [line.name for line in shown if line.name.startswith("cuda:0 to")]
    assert names == ["cuda:0 to nvme0n1, nvme1n1, nvme2n1", "cuda:0 to nvme3n1"]


def test_full_file_system_is_reported(machine):
    facts = machine.facts()
    for free, status in ((0, Status.NO), (1 << 30, Status.WARN), (90 << 30, Status.OK)):
        room = {"free_bytes": free, "total_bytes": 100 << 30}
        line = machine.line("Free space", storage=facts["storage"] | room)
        assert line.status is status
        assert bool(line.remedy) == (status is not Status.OK)


def test_file_system_that_is_read_only_is_reported(machine):
    machine.mount("ext4", "/dev/nvme0n1p1", "ro,data=ordered")
    is_remedied(machine.line("Free space"), Status.WARN, "remount,rw")


# -- HDF5 and packages ----------------------------------------------------------------------


def test_library_that_is_too_old_or_broken_is_reported(machine):
    old = {"loads": False, "reason": "plugins need HDF5 1.14 or later"}
    library = {
        "path": "/usr/lib/libhdf5.so.200",
        "found": "the loader's cache",
        "asked": True,
        "version": "1.12.2",
        "thread_safe": True,
        "driver": old,
        "connector": {"loads": False, "reason": "can't open plugin"},
        "reason": None,
    }
    lines = machine.lines(hdf5=[library])
    found = {line.name: line for line in lines if line.section == "HDF5"}
    assert "1.12.2, thread-safe" in found["HDF5: the loader's cache"].found
    is_remedied(found["Penstock's driver in it"], Status.WARN, "HDF5 1.14")
    is_remedied(found["Penstock's connector in it"], Status.NO, "--plugin-dir")
    broken = library | {"version": None, "reason": "file too short"}
    is_remedied(machine.line("HDF5: the loader's cache", hdf5=[broken]), Status.WARN, "ldd")
    passed_over = broken | {"asked": False, "reason": None}
    line = machine.line("HDF5: the loader's cache", hdf5=[passed_over])
    is_remedied(line, Status.UNKNOWN, "HDF5_DIR")


def test_torch_without_cuda_beside_a_gpu_is_reported(machine):
    python = machine.facts()["python"]
    line = machine.line("torch", python=python | {"torch": "2.9.0+cpu"})
    is_remedied(line, Status.WARN, "CUDA")
    assert machine.line("torch", python=python | {"torch": "2.9.0+cu130"}).status is Status.OK
