"""Which crate may take which, and what none of them may name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tomllib

from .test_modules import CRATES, code

# Downwards: each crate, and those that it may take.
ALLOWED = {
    "sys": set[str](),
    "cudasim": {"sys"},
    "engine": {"sys"},
    "codec": {"sys"},
    "array": {"codec", "engine", "sys"},
    "hdf5": {"array", "codec", "engine", "sys"},
    "vfd": {"hdf5", "engine", "sys"},
    "vol": {"hdf5", "array", "engine", "sys"},
    "capi": {"vfd", "vol", "hdf5", "array", "codec", "engine", "sys"},
    "python": set[str](),
}


def taken(crate: str) -> set[str]:
    manifest = tomllib.loads((CRATES / crate / "Cargo.toml").read_text())
    return {
        name.removeprefix("penstock-")
        for name in manifest.get("dependencies", {})
        if name.startswith("penstock-")
    }


def sources(crate: str) -> list[Path]:
    return sorted((CRATES / crate / "src").rglob("*.rs"))


def test_every_crate_has_its_place():
    assert {manifest.parent.name for manifest in CRATES.glob("*/Cargo.toml")} == set(ALLOWED)


@pytest.mark.parametrize("crate", ALLOWED)
def test_a_crate_takes_only_those_below_it(crate):
    assert taken(crate) <= ALLOWED[crate]


@pytest.mark.parametrize(
    ("crate", "foreign"),
    [
        ("array", r"hdf5|\bH5|\bhid_t\b"),
        ("hdf5", r"penstock_vfd|penstock_vol|\bvfd::|\bvol::"),
    ],
)
def test_a_crate_does_not_name_what_it_must_not_know(crate, foreign):
    for file in sources(crate):
        found = re.search(foreign, code(file.read_text()), re.IGNORECASE)
        assert found is None, f"{file.relative_to(CRATES)} names {found and found.group()}"


def test_no_crate_is_more_than_30_percent_of_the_tree():
    lines = {
        crate: sum(len(file.read_text().splitlines()) for file in sources(crate))
        for crate in ALLOWED
    }
    assert max(lines.values()) <= 0.3 * sum(lines.values()), lines


def test_the_environment_is_read_in_one_module():
    """It says of each variable whether it names a file, which setuid programs must not take."""
    # A plugin links with no other crate: one has the same rule, one reads options alone.
    own = {
        "crates/sys/src/environment.rs",
        "plugins/forward/src/lib.rs",
        "plugins/legate/src/lib.rs",
    }
    root = CRATES.parent
    files = [*CRATES.glob("*/src/**/*.rs"), *root.glob("plugins/*/src/**/*.rs")]
    reads = {
        str(file.relative_to(root))
        for file in files
        if "cudasim" not in file.parts and re.search(r"env::var|getenv", code(file.read_text()))
    }
    assert reads <= own
