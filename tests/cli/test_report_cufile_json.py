"""What `penstock report` says of a cufile.json, key by key."""

from __future__ import annotations

import os

import pytest
from tests.machines import CUFILE_JSON, Machine, is_remedied

from penstock.diagnosis import Status


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("max_io_threads", "8", "4"),
        ("parallel_io", "true", "false"),
        ("max_request_parallelism", "8", "2"),
        ("per_buffer_cache_size_kb", "16384", "1024"),
    ],
)
def test_key_of_cufile_json_is_reported_with_its_value_and_advice(machine, key, good, bad):
    assert f'"{key}": {good}' in CUFILE_JSON
    machine.write("/etc/cufile.json", CUFILE_JSON.replace(f'"{key}": {good}', f'"{key}": {bad}'))
    line = machine.line(key)
    is_remedied(line, Status.WARN, f'"{key}": {good}')
    assert line.found == bad
    machine.write("/etc/cufile.json", CUFILE_JSON.replace(f'"{key}": {good}', f'"{key}": "?"'))
    is_remedied(machine.line(key), Status.NO, f'"{key}": {good}')


def test_key_that_is_not_set_is_reported_with_its_default(machine):
    machine.remove("/etc/cufile.json")
    assert machine.line("File", "cufile.json").found == "no /etc/cufile.json"
    assert machine.line("max_io_threads").found == "not set, 4 by default"


def test_too_few_bounce_buffers_are_reported(machine):
    text = CUFILE_JSON.replace('"note"', '"max_device_cache_size_kb": 32768, "note"')
    machine.write("/etc/cufile.json", text)
    line = machine.line("Bounce buffers")
    is_remedied(line, Status.WARN, '"max_device_cache_size_kb": 131072')
    assert line.found == "2 of 16.0 MiB"


def test_compat_mode_that_is_not_allowed_is_reported_where_it_is_needed(machine):
    text = CUFILE_JSON.replace('compat_mode": true', 'compat_mode": false')
    machine.write("/etc/cufile.json", text)
    assert machine.line("allow_compat_mode").status is Status.OK
    machine.described["cufile"]["mode"] = "compat"
    is_remedied(machine.line("allow_compat_mode"), Status.NO, '"allow_compat_mode": true')
    machine.environment["CUFILE_ALLOW_COMPAT_MODE"] = "true"
    assert machine.line("allow_compat_mode").status is Status.OK
    machine.environment["CUFILE_FORCE_COMPAT_MODE"] = "true"
    is_remedied(machine.line("allow_compat_mode"), Status.WARN, "CUFILE_FORCE_COMPAT_MODE")


def test_variable_that_cufile_no_longer_reads_is_reported(machine):
    machine.environment["CUFILE_ALLOW_COMPAT_MODE"] = "false"
    assert machine.line("allow_compat_mode").found == "false"
    machine.described["cufile"]["version"] = "1.17"
    is_remedied(machine.line("CUFILE_ALLOW_COMPAT_MODE"), Status.WARN, "allow_compat_mode")
    assert machine.line("allow_compat_mode").found == "true"


def test_variable_that_no_cufile_reads_is_reported(machine):
    machine.environment["CUFILE_CONFIG_FILE"] = "/etc/mine.json"
    is_remedied(machine.line("CUFILE_CONFIG_FILE"), Status.WARN, "CUFILE_ENV_PATH_JSON")


def test_log_of_every_request_is_reported(machine):
    machine.write("/etc/cufile.json", CUFILE_JSON.replace('"ERROR"', '"TRACE"'))
    is_remedied(machine.line("logging.level"), Status.WARN, '"level": "ERROR"')


@pytest.mark.parametrize(
    ("contents", "why"),
    [
        (b'{\n  "execution": {\n    "parallel_io": yes\n  }\n}', "line 3, column 20"),
        (b'{\n  "execution": {\n    "parallel_io": true,\n  }\n}', "is invalid at line"),
        (b'{ "a": 1 // }', "line 1"),
        (b"", "line 1, column 1"),
        (b"[1, 2]", "not an object"),
        (b'{"a": "\xff"}', "not UTF-8: byte 7"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 1500 + b"1" + b"}" * 1500, "nested too deeply"),
    ],
)
def test_broken_cufile_json_is_one_line(machine, contents, why):
    machine.write("/etc/cufile.json", contents)
    lines = [line for line in machine.lines() if line.section == "cufile.json"]
    assert [line.name for line in lines] == ["File"]
    is_remedied(lines[0], Status.NO, "JSON with // comments")
    assert why in lines[0].found
    assert "\n" not in lines[0].found


def test_cufile_json_that_is_a_pipe_is_not_waited_for(machine):
    machine.remove("/etc/cufile.json")
    os.mkfifo(machine.root / "etc/cufile.json")
    line = machine.line("File", "cufile.json")
    is_remedied(line, Status.NO, "Fix it")
    assert "no file" in line.found


@pytest.mark.parametrize("number", ["1" + "0" * 400, "-1" + "0" * 400, "1e400", "NaN", '"8"'])
def test_number_that_cufile_cannot_read_is_reported(machine, number):
    machine.write("/etc/cufile.json", f'{{"properties": {{"per_buffer_cache_size_kb": {number}}}}}')
    is_remedied(machine.line("per_buffer_cache_size_kb"), Status.NO, "Set")
    is_remedied(machine.line("Bounce buffers"), Status.UNKNOWN, "Fix the keys")


def test_what_a_terminal_would_obey_is_shown_and_not_done(machine):
    machine.write("/etc/cufile.json", '{"logging": {"level": "\\u001b[2J\\u0085\\ud800"}}')
    assert machine.line("logging.level").found == "\\x1b[2J\\x85\\ud800"


def test_bounce_buffers_of_no_size_are_not_taken_for_those_by_default(machine):
    machine.write("/etc/cufile.json", '{"properties": {"per_buffer_cache_size_kb": 0}}')
    is_remedied(machine.line("Bounce buffers"), Status.UNKNOWN, "Fix the keys")


def test_cufile_json_is_named_from_the_working_folder_on(machine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    machine.environment["CUFILE_ENV_PATH_JSON"] = "mine.json"
    machine.write(str(tmp_path / "mine.json"), '{"execution": {"max_io_threads": 16}}')
    assert machine.line("max_io_threads").found == "16"
    assert str(tmp_path / "mine.json") in machine.line("File", "cufile.json").found


def test_cufile_json_that_the_environment_names_is_the_one_in_force(machine):
    machine.environment["CUFILE_ENV_PATH_JSON"] = "/opt/mine.json"
    line = machine.line("File", "cufile.json")
    is_remedied(line, Status.NO, "Fix it")
    assert line.found == "/opt/mine.json does not exist, named by CUFILE_ENV_PATH_JSON"
    machine.write("/opt/mine.json", '{"execution": {"max_io_threads": 16}}')
    assert machine.line("max_io_threads").found == "16"
