"""`penstock demo`: its rows, its verdict, and what it leaves behind."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from penstock.cli import app, samples

pytestmark = pytest.mark.either


@pytest.fixture(scope="module")
def shown(penstock, tmp_path_factory):
    return penstock.json("demo", "--size", "16MiB", "--dir", tmp_path_factory.mktemp("demo"))


def test_every_row_is_verified(shown):
    assert shown["verified"] is True
    assert len(shown["rows"]) >= 8
    assert all(row["verified"] for row in shown["rows"])


def test_every_layout_has_a_row(shown):
    layouts = " ".join(row["layout"] for row in shown["rows"])
    for word in ("1-D", "2-D", "half", "chunked", "gzip", "big-endian", "compact", "tensor"):
        assert word in layouts


def test_rates_and_ratio_fit_together(shown):
    for row in shown["rows"]:
        assert row["bytes"] > 0
        assert row["ratio"] == pytest.approx(row["gb_per_s"] / row["peer_gb_per_s"])


def test_compressed_chunks_are_decoded_without_hdf5(shown):
    (zipped,) = [row for row in shown["rows"] if "gzip" in row["layout"]]
    assert zipped["decoder"] in ("CPU", "GPU") or "GPU" in zipped["decoder"]
    assert zipped["route"] != "hdf5"
    assert zipped["ratio"] > 0


def test_routes_are_those_of_the_memory(shown, on_gpu):
    routes = {row["route"] for row in shown["rows"]}
    if on_gpu:
        assert shown["device"] == "cuda:0"
        assert {"staged", "mapped"} <= routes
        assert "host" not in routes
    else:
        assert shown["device"] == "cpu"
        assert "no GPU" in shown["memory"]
        assert "host" in routes


def test_files_are_gone_afterwards(penstock, tmp_path):
    penstock("demo", "--size", "1MiB", "--dir", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_table_names_the_memory_that_was_read_to(penstock, on_gpu):
    shown = penstock("demo", "--size", "1MiB").stdout
    assert ("cuda:0" if on_gpu else "host memory") in shown
    assert "Verified" in shown


def test_host_memory_can_be_requested(penstock):
    shown = penstock.json("demo", "--size", "1MiB", "--device", "cpu")
    assert shown["device"] == "cpu"
    assert shown["verified"]


@pytest.mark.parametrize("size", ["4 parsecs", "1KiB", "100000TiB"])
def test_size_that_cannot_be_is_refused(penstock, size):
    assert "--size" in penstock("demo", "--size", size, status=2).stderr


@pytest.mark.parametrize("place", ["absent", "file", "/proc"])
def test_folder_that_takes_no_files_is_named_with_a_remedy(penstock, tmp_path, place):
    (tmp_path / "file").touch()
    folder = tmp_path / place
    shown = penstock("demo", "--size", "1MiB", "--dir", folder, status=1).stderr
    assert f"the demo cannot use {folder}: " in shown
    assert "--dir" in shown
    assert "penstock-demo-" not in shown


def test_limit_that_stops_the_files_is_named_with_a_remedy(penstock, tmp_path):
    words = [*penstock.words, "demo", "--size", "1MiB", "--dir", str(tmp_path)]
    command = ["bash", "-c", 'ulimit -f 10; exec "$@"', "bash", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"the demo cannot use {tmp_path}: " in done.stderr
    assert "ulimit -f" in done.stderr
    assert done.stderr.count("\n") == 1


def test_byte_that_differs_fails_the_command(monkeypatch):
    @contextmanager
    def one_bit_off(*arguments):
        with opened(*arguments) as found:
            wrong = found[0].peer()
            wrong.view("uint8")[-1] ^= 1
            yield [replace(found[0], peer=lambda: wrong), found[1]]

    opened = samples.opened
    monkeypatch.setattr(samples, "opened", one_bit_off)
    shown = CliRunner().invoke(app, ["demo", "--size", "1MiB", "--device", "cpu", "--json"])
    assert shown.exit_code == 1
    assert '"verified": false' in shown.stdout
    assert '"verified": true' in shown.stdout
