"""Sizes of the commands are those of the library's options."""

from __future__ import annotations

import pytest
import typer

import penstock as ps
from penstock.units import parse_size


@pytest.mark.parametrize("text", ["5KB", "5 kb", "64k", "64KiB", "1.5MiB", "4096", "0.25gib"])
def test_a_size_of_a_command_is_one_of_an_option(text):
    size = parse_size(text)
    with ps.options(block=text):  # from 4 KiB on
        assert size >= 4096


@pytest.mark.parametrize("text", ["", "5x", "-1", "1e3", "99999999999999999999", "\udcff", "7 PB"])
def test_what_is_no_size_for_one_is_none_for_the_other(text):
    with pytest.raises(typer.BadParameter, match="size"):
        parse_size(text)
    with pytest.raises(ps.InvalidError, match="size"), ps.options(block=text):
        pass
