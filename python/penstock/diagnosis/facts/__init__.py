"""What is so on this machine: no judgement, and ``None`` for what is not told."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from penstock.diagnosis.facts import cufile, gpu, hdf5, host, kernel, packages, storage
from penstock.diagnosis.system import System


def gather(
    described: Mapping[str, Any],
    path: str | os.PathLike[str] | None = None,
    system: System | None = None,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """All facts, as a dictionary that JSON can hold.

    Args:
        described: What ``penstock.describe(path)`` answered. All its keys are kept.
        path: The file or folder whose file system is looked at.
        system: Where the files of kernel and drivers are read.
        environment: The environment variables that cuFile and HDF5 look at.
    """
    system = System() if system is None else system
    environment = os.environ if environment is None else environment
    facts: dict[str, Any] = dict(described)
    facts["machine"] = system.machine
    facts["host"] = host.read(system)
    facts["pci_p2pdma"] = kernel.p2pdma(system, described["kernel"])
    facts["iommu"] = kernel.iommu(system)
    facts["nvme"] = kernel.nvme(system)
    facts["nvidia"] = gpu.driver(system)
    facts["gpus"] = gpu.devices(system, described["cuda"]["devices"])
    facts["nvidia_fs"] = cufile.nvidia_fs(system)
    facts["cufile_json"] = cufile.configuration(system, environment)
    facts["storage"] = None if path is None else storage.read(system, path, facts["gpus"])
    facts["python"] = packages.read()
    facts["hdf5"] = hdf5.libraries(environment)
    facts["nvcomp"] = packages.nvcomp(environment)
    return facts
