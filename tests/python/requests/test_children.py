"""Children of multiprocessing, which end without the functions of ``atexit``."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import multiprocessing
import numpy as np
import penstock as ps

kept = []

def save():
    kept.append(ps.save_async("saved.bin", np.ones(8 << 20)))

if __name__ == "__main__":
    child = multiprocessing.get_context("{method}").Process(target=save)
    child.start()
    child.join()
    assert child.exitcode == 0
"""


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_child_finishes_what_is_pending_at_its_end(tmp_path, method):
    (tmp_path / "program.py").write_text(PROGRAM.format(method=method))
    command = [sys.executable, "program.py"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    assert (tmp_path / "saved.bin").stat().st_size == 64 << 20
