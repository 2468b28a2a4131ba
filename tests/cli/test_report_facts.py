"""How the facts of `penstock report` are found."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from tests.machines import DRIVE, GPU, NUMBER, Machine

import penstock as ps
from penstock.diagnosis import System
from penstock.diagnosis.facts import cufile, gpu, hdf5, link, nvml, storage


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


# -- files ----------------------------------------------------------------------------------


def test_file_that_is_missing_or_forbidden_or_a_folder_is_none(tmp_path):
    system = System(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("1")
    secret.chmod(0)
    (tmp_path / "folder").mkdir()
    assert system.text("/missing") is None
    assert system.number("/folder") is None
    assert system.names("/secret") == []
    if os.geteuid():  # root may read everything
        assert system.text("/secret") is None
    assert system.target("/missing") is None


def test_what_may_not_be_looked_at_neither_exists_nor_is_missing(tmp_path, monkeypatch):
    def forbid(path, *_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    system = System(tmp_path)
    assert system.is_missing("/file")
    monkeypatch.setattr(os, "stat", forbid)
    monkeypatch.setattr(Path, "stat", forbid)
    assert not system.exists("/file")
    assert not system.is_missing("/file")
    assert system.text("/file") is None
    found = cufile.configuration(system, {"CUFILE_ENV_PATH_JSON": "/file"})
    assert (found["exists"], found["reason"]) == (
        False,
        "cannot be read: no permission, or no file",
    )


def test_link_that_leads_out_of_the_tree_or_in_a_circle_leads_nowhere(tmp_path):
    (tmp_path / "out").symlink_to("/proc/self/status")
    (tmp_path / "circle").symlink_to("circle")
    system = System(tmp_path)
    assert system.target("/out") is None
    assert system.target("/circle") is None


def test_empty_tree_gives_facts_and_no_error(machine, tmp_path):
    machine.root = tmp_path / "nothing"
    facts = machine.facts()
    assert facts["nvidia"] == {
        "loaded": False,
        "version": None,
        "open_module": None,
        "registry": None,
    }
    assert facts["storage"]["mount"] is None
    assert facts["storage"]["layers"] == []


def test_tree_of_random_bytes_gives_facts_and_no_error(machine):
    noise = np.random.default_rng(7)
    for path in sorted(machine.root.rglob("*")):
        if path.is_file() and not path.is_symlink():
            path.write_bytes(noise.bytes(200))
    assert machine.lines()


def test_the_facts_of_describe_are_kept(machine):
    facts = machine.facts()
    assert {key: facts[key] for key in machine.described} == machine.described


# -- GPU ------------------------------------------------------------------------------------


def test_registry_keys_are_those_of_all_gpus(machine):
    machine.write(
        "/proc/driver/nvidia/params",
        'RegistryDwords: "A=1; B=0x2;;C"\nRegistryDwordsPerDevice: "D=1"\n',
    )
    assert gpu.driver(System(machine.root))["registry"] == {"A": "1", "B": "0x2"}


def test_gpu_on_the_bus_is_found_without_cuda(machine):
    (found,) = gpu.devices(System(machine.root), [])
    assert (found["pci_bus_id"], found["ordinal"]) == (GPU, None)
    assert found["bar1_bytes"] == 256 << 30
    assert found["link"]["max_generation"] == 5


def test_nvml_is_not_queried_about_another_machine(machine, monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda *_: pytest.fail("it was opened"))
    assert nvml.query([GPU], System(machine.root)) == {}


def test_nvml_is_queried_call_by_call(monkeypatch):
    def set_to(value):
        def answer(_, place):
            place._obj.value = value
            return 0

        return answer

    class Library:
        nvmlInit_v2 = nvmlShutdown = staticmethod(lambda: 0)  # noqa: N815
        nvmlDeviceGetHandleByPciBusId_v2 = staticmethod(  # noqa: N815
            lambda bus_id, _: 0 if bus_id == GPU.encode() else 6
        )
        nvmlDeviceGetPersistenceMode = staticmethod(set_to(1))  # noqa: N815
        nvmlDeviceGetCurrPcieLinkGeneration = staticmethod(set_to(4))  # noqa: N815
        nvmlDeviceGetCurrPcieLinkWidth = staticmethod(lambda *_: 3)  # noqa: N815

    monkeypatch.setattr(ctypes, "CDLL", lambda *_: Library)
    assert nvml.query([GPU, "0000:99:00.0"], System()) == {
        GPU: {"persistence": True, "generation": 4}
    }


@pytest.mark.gpu
def test_link_is_measured_both_ways():
    rates = link.measure(0, None, nbytes=8 << 20)
    assert rates["reason"] is None
    assert rates["to_gpu"] > 0
    assert rates["from_gpu"] > 0


@pytest.mark.gpu
def test_link_is_looked_at_while_it_is_measured(machine):
    rates = link.measure(0, GPU, System(machine.root), nbytes=1 << 20)
    assert (rates["generation"], rates["width"]) == (5, 16)


def test_link_of_a_gpu_that_is_not_there_has_a_reason():
    assert link.measure(63, None, nbytes=1 << 20)["reason"]


# -- cufile.json ----------------------------------------------------------------------------


def test_comments_go_and_strings_stay():
    text = '{ // one\n "a": "x // y /* z */ \\" // w", /* two\n lines */ "b": {"c": 1} } // end'
    assert cufile.parse(text) == {"a": 'x // y /* z */ " // w', "b.c": 1}


def test_place_of_an_error_counts_comments():
    with pytest.raises(ValueError, match="line 3, column 2"):
        cufile.parse("{ /* a\n b */ // c\n ! }")


# -- storage --------------------------------------------------------------------------------


def test_partition_on_a_drive_is_followed_to_its_controller(machine):
    found = storage.read(System(machine.root), machine.data, [])
    assert [(layer["name"], layer["kind"]) for layer in found["layers"]] == [
        ("nvme0n1p1", "partition"),
        ("nvme0n1", "nvme"),
    ]
    assert found["layers"][1]["transport"] == "pcie"
    assert found["layers"][1]["numa_node"] == 0


def test_drive_with_multipath_is_followed_to_a_controller(machine):
    subsystem = "/sys/devices/virtual/nvme-subsystem/nvme-subsys0"
    machine.write(f"{subsystem}/nvme0n1/size", "1\n")
    machine.link(f"{subsystem}/nvme0", DRIVE.rsplit("/", 1)[0])
    machine.link(f"/sys/dev/block/{NUMBER}", f"{subsystem}/nvme0n1")
    (drive,) = storage.read(System(machine.root), machine.data, [])["layers"]
    assert (drive["transport"], drive["numa_node"]) == ("pcie", 0)


def test_devices_that_consist_of_each_other_end(machine):
    machine.link(f"{DRIVE}/slaves/itself", DRIVE)
    assert storage.read(System(machine.root), machine.data, [])["layers"]


def test_mount_is_the_nearest_and_of_two_at_one_place_the_later(machine):
    point = machine.data.resolve()
    machine.write(
        "/proc/self/mountinfo",
        f"1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 8:2 / {point} rw - xfs /dev/b rw\n"
        f"3 1 8:3 / {point} rw - btrfs /dev/c rw,a=b\n4 1 8:4 / {point}x rw - vfat /dev/d rw\n"
        "broken line\n",
    )
    mount = storage.read(System(machine.root), machine.data, [])["mount"]
    assert (mount["type"], mount["source"]) == ("btrfs", "/dev/c")
    assert "a=b" in mount["options"]


def test_mount_point_with_a_space_is_understood(tmp_path):
    machine = Machine(tmp_path / "with space")
    assert storage.read(System(machine.root), machine.data, [])["mount"]["type"] == "ext4"


# -- HDF5 -----------------------------------------------------------------------------------


def test_h5pys_library_is_queried_and_the_plugins_load_into_it():
    (library,) = [found for found in hdf5.libraries(os.environ) if "h5py" in found["found"]]
    assert library["version"] == h5py.version.hdf5_version
    assert library["thread_safe"] is not None
    assert library["driver"] == {"loads": True, "reason": None}
    assert library["connector"] == {"loads": True, "reason": None}


def test_library_that_is_none_is_reported_with_the_loaders_reason(tmp_path):
    (tmp_path / "libhdf5.so.310").write_bytes(b"no library")
    (tmp_path / "libhdf5_hl.so.310").write_bytes(b"not asked")
    (library,) = [
        found
        for found in hdf5.libraries(os.environ | {"LD_LIBRARY_PATH": str(tmp_path)})
        if found["found"] == "LD_LIBRARY_PATH"
    ]
    assert library["version"] is None
    assert "file too short" in library["reason"]


def test_plugins_that_are_not_there_are_reported_with_hdf5s_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(hdf5.paths, "plugin_dir", lambda: tmp_path)
    library = next(found for found in hdf5.libraries(os.environ) if "h5py" in found["found"])
    for kind in ("driver", "connector"):
        assert library[kind]["loads"] is False
        assert library[kind]["reason"]


def test_process_that_dies_is_reported(monkeypatch, tmp_path):
    probe = tmp_path / "probe.py"
    probe.write_text('import os\nprint(\'{"version": "1.14.4"}\', flush=True)\nos.abort()\n')
    monkeypatch.setattr(hdf5, "_PROBE", probe)
    library = hdf5.libraries(os.environ)[0]
    assert library["version"] == "1.14.4"
    assert "signal 6" in library["reason"]


def test_words_of_a_library_are_no_answers(monkeypatch, tmp_path):
    probe = tmp_path / "probe.py"
    probe.write_text('print("warning: no fabric\\n5\\n[]\\n{\\"version\\": \\"2.0.0\\"}")\n')
    monkeypatch.setattr(hdf5, "_PROBE", probe)
    library = hdf5.libraries(os.environ)[0]
    assert (library["version"], library["reason"]) == ("2.0.0", None)


def test_libraries_beyond_a_number_are_named_and_not_queried(monkeypatch):
    monkeypatch.setattr(hdf5, "_MOST", 0)
    monkeypatch.setattr(hdf5, "_ask", lambda *_: pytest.fail("it was asked"))
    (library, *_) = hdf5.libraries(os.environ)
    assert library["asked"] is False
    assert library["version"] is None


def test_python_that_cannot_be_started_is_reported(monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text("")
    python.chmod(stat.S_IRUSR)
    monkeypatch.setattr(sys, "executable", str(python))
    assert "Permission denied" in hdf5.libraries(os.environ)[0]["reason"]


# -- describe -------------------------------------------------------------------------------


def test_describe_reports_length_and_cached_share_of_a_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    system = ps.describe(path)["file_system"]
    assert system["file_bytes"] == 1 << 20
    assert 0 <= system["cached"] <= 1
    assert ps.describe(tmp_path)["file_system"]["cached"] is None


def test_describe_takes_a_path_that_is_not_there_yet_for_the_folder_above_it(tmp_path):
    here = ps.describe(tmp_path)["file_system"]
    found = ps.describe(tmp_path / "absent" / "file")["file_system"]
    assert (found["type"], found["magic"]) == (here["type"], here["magic"])
    assert "absent" in found["reason"]
