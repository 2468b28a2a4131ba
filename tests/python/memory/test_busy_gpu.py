"""No operation waits for streams of the program, whatever they wait for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.python.memory.busy_gpu import OPERATIONS

pytestmark = pytest.mark.gpu
PROGRAM = Path(__file__).with_name("busy_gpu.py")


@pytest.mark.parametrize("streams", [4, 16, 64])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_ends_while_streams_of_the_program_wait(operation, streams, tmp_path):
    done = subprocess.run(
        [sys.executable, PROGRAM, operation, str(streams), tmp_path],
        # On the stand-in, calls wait for all streams of their context, as on a GPU.
        env=os.environ | {"CUDASIM_BLOCKING": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stderr
