"""Facts about this machine, without judgement. Unknown facts are ``None``."""

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
    """Return all facts as a dictionary that can be written as JSON.

    Args:
        described: The result of ``penstock.describe(path)``. All its keys are kept.
        path: The file or folder whose file system to examine.
        system: Reads the files of kernel and drivers.
        environment: The environment variables that cuFile and HDF5 read.
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
