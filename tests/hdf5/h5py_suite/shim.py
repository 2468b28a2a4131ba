"""A plugin of pytest: h5py's own tests get Penstock's File, Group and Dataset as those of h5py.

Each module of the tests sees another ``h5py``, which differs from the real one in these three
classes. The real one stays as it is, because Penstock itself uses it.
"""

from __future__ import annotations

import sys
from types import ModuleType

import h5py
import pytest

import penstock as ps

CLASSES = {h5py.File: ps.File, h5py.Group: ps.Group, h5py.Dataset: ps.Dataset}

ours = ModuleType("h5py", h5py.__doc__)
vars(ours).update(vars(h5py))
vars(ours).update({kind.__name__: kind for kind in CLASSES.values()})


def replace_classes(module: ModuleType) -> None:
    """Give a module of the tests Penstock's classes, however it has imported h5py's."""
    for name, value in list(vars(module).items()):
        if value is h5py:
            setattr(module, name, ours)
        elif isinstance(value, type) and value in CLASSES:
            setattr(module, name, CLASSES[value])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("h5py.tests"):
            replace_classes(module)
