"""`penstock run --launcher`: the line that starts the ranks, and what each rank is bound to."""

from __future__ import annotations

import os
import sys

import pytest
import typer

from penstock.cli.bind import CannotBindError, bound
from penstock.cli.launcher import Layout
from penstock.dist.launched import Launched

NONE = {"--gpu-bind": None, "--cpu-bind": None, "--mem-bind": None}


def layout(launcher="mpirun", nodes=1, ranks=4, gpus=None, extra=(), **bindings):
    given = {f"--{name}-bind": items for name, items in bindings.items()}
    return Layout.of(launcher, nodes, ranks, gpus, NONE | given, extra)


def test_mpirun_places_the_ranks_and_exports_what_was_set():
    line = layout(nodes=2).line(["./program", "-v"], ["HDF5_DRIVER", "A"])
    assert line == [
        *("mpirun", "-n", "8", "--map-by", "ppr:4:node", "--bind-to", "none"),
        *("-x", "A", "-x", "HDF5_DRIVER", "./program", "-v"),
    ]


def test_srun_places_the_ranks():
    line = layout("srun", nodes=2, extra=["--exclusive"]).line(["./program"], ["A"])
    assert line == [
        *("srun", "-n", "8", "--nodes", "2", "--ntasks-per-node", "4", "--cpu-bind", "none"),
        *("--exclusive", "./program"),
    ]


def test_each_rank_binds_itself():
    line = layout(cpu="0-1/2-3/4-5/6-7", mem="0/0/1/1", gpus=1).line(["./program"], [])
    assert line[7:] == [
        *(sys.executable, "-m", "penstock.cli.bind", "--gpu-places=0/1/2/3"),
        *("--cpu=0-1/2-3/4-5/6-7", "--mem=0/0/1/1", "--", "./program"),
    ]


def test_gpus_are_given_out_in_turn():
    assert layout(ranks=2, gpus=2).bindings == ["--gpu-places=0,1/2,3"]
    assert layout(ranks=2, gpus=2, gpu="2,3/0,1").bindings == ["--gpu=2,3/0,1"]


@pytest.mark.parametrize(
    ("visible", "expected"), [({}, "1"), ({"CUDA_VISIBLE_DEVICES": "4,GPU-5"}, "GPU-5")], ids=str
)
def test_gpus_are_those_of_the_allocation(visible, expected):
    words = ["--gpu-places=0/1", "--", "./program"]
    _, environment = bound(words, {"SLURM_LOCALID": "1", **visible})
    assert environment["CUDA_VISIBLE_DEVICES"] == expected


@pytest.mark.parametrize("visible", ["", "4"])
def test_an_allocation_with_too_few_gpus_is_an_error(visible):
    words = ["--gpu-places=0/1", "--", "./program"]
    with pytest.raises(CannotBindError, match="too few GPUs"):
        bound(words, {"SLURM_LOCALID": "1", "CUDA_VISIBLE_DEVICES": visible})


def test_a_rank_can_have_no_gpu():
    (word,) = layout(ranks=1, gpus=0).bindings
    assert bound([word, "--", "./program"], {})[1]["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize("words", [[], ["--gpu=0/1"], ["--gpu=0", "--"]], ids=str)
def test_a_rank_without_a_command_is_an_error(words):
    with pytest.raises(CannotBindError, match="no command"):
        bound(words, {"SLURM_LOCALID": "0"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"launcher": "jsrun"}, "not one of mpirun, srun, none"),
        ({"launcher": "none"}, "4 ranks need"),
        ({"ranks": 0}, "less than 1"),
        ({"gpus": -1}, "less than 0"),
        ({"gpu": "0/1"}, "2 item.s. for 4"),
        ({"cpu": "0//1/2"}, "separate them by /"),
        ({"gpu": "0/1/2/3", "gpus": 2}, "does not name 2"),
    ],
)
def test_flags_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(typer.BadParameter, match=message):
        layout(**arguments)


@pytest.mark.parametrize(
    "variable", ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"]
)
def test_a_rank_takes_the_item_of_its_local_rank(variable):
    words = ["--gpu=3/2", "--cpu=0-1/2-3", "--mem=0/1", "--", "./program", "--", "-v"]
    command, environment = bound(words, {variable: "1", "KEPT": "yes"})
    assert command == [*("numactl", "--physcpubind=2-3", "--membind=1", "./program", "--", "-v")]
    assert environment["CUDA_VISIBLE_DEVICES"] == "2"
    assert environment["KEPT"] == "yes"


def test_without_cores_and_memory_numactl_is_not_needed():
    assert bound(["--gpu=3", "--", "./program"], {})[0] == ["./program"]


def test_a_rank_without_a_number_or_an_item_is_an_error():
    with pytest.raises(CannotBindError, match="has not set"):
        bound(["--gpu=0/1", "--", "./program"], {})
    with pytest.raises(CannotBindError, match="no item"):
        bound(["--gpu=0/1", "--", "./program"], {"SLURM_LOCALID": "2"})


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"), (5, 8, 1)),
        (("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"), (5, 8, 1)),
        (("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"), (5, 8, 1)),
        (("LEGATE_RANK", "LEGATE_SIZE", "LEGATE_LOCAL_RANK"), (5, 8, 1)),
        (("OTHER_RANK", "OTHER_SIZE", "OTHER_LOCAL_RANK"), (None, None, None)),
    ],
)
def test_the_variables_of_launchers_are_understood(variables, expected):
    given = dict(zip(variables, ("5", "8", "1"), strict=True))
    assert Launched.by(given) == expected


def test_the_line_is_printed_and_runs(penstock, tmp_path):
    launcher = tmp_path / "mpirun"
    launcher.write_text(
        '#!/bin/sh\nwhile [ "$1" != -m ]; do shift; done\nshift 2\n'
        'SLURM_LOCALID=1 exec "$PYTHON" -m penstock.cli.bind "$@"\n'
    )
    launcher.chmod(0o755)
    done = penstock(
        *("run", "--launcher", "mpirun", "--ranks-per-node", 2, "--gpu-bind", "7/5", "--"),
        *(sys.executable, "-c", "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"),
        PATH=f"{tmp_path}:{os.environ['PATH']}",
        PYTHON=sys.executable,
    )
    assert done.stdout == "5\n"
    assert "mpirun -n 2 --map-by ppr:2:node --bind-to none -x " in done.stderr
    assert "-x HDF5_DRIVER " in done.stderr


def test_variables_that_are_set_already_are_exported_as_well(penstock, tmp_path):
    launcher = tmp_path / "mpirun"
    launcher.write_text("#!/bin/sh\n")
    launcher.chmod(0o755)
    done = penstock(
        *("run", "--launcher", "mpirun", "--", "./program"),
        PATH=f"{tmp_path}:{os.environ['PATH']}",
        HDF5_DRIVER="penstock",
        HDF5_DRIVER_CONFIG="mode=auto",
        CUFILE_ALLOW_COMPAT_MODE="true",
    )
    for name in (
        "HDF5_DRIVER",
        "HDF5_DRIVER_CONFIG",
        "HDF5_PLUGIN_PATH",
        "CUFILE_ALLOW_COMPAT_MODE",
    ):
        assert f"-x {name} " in done.stderr


def test_a_quote_that_does_not_end_is_refused(penstock):
    done = penstock(
        "run", "--launcher", "mpirun", "--launcher-extra", "unbalanced ' quote", "--", "x", status=2
    )
    assert "Invalid value for --launcher-extra" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_command_without_ranks_is_not_bound(penstock):
    done = penstock("run", "--", "echo", "hello")
    assert done.stdout == "hello\n"
    assert "mpirun" not in done.stderr
