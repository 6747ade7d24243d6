"""Whose a test cluster is: a process is told from another that has its number, and nobody guesses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from podyard.testing.owners import is_gone, own

BOOT = "0d5a7c2e"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    boot = tmp_path / "sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text(f"{BOOT}\n")
    process(tmp_path, os.getpid(), "1")
    return tmp_path


def process(proc: Path, pid: int, start: str, name: str = "py test) 1") -> None:
    fields = ["S", *(str(number) for number in range(4, 22)), start, "23", "24"]
    (proc / str(pid)).mkdir(exist_ok=True)
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")


def test_a_process_is_known_by_boot_number_and_start(proc):
    process(proc, 7, "4711")
    assert own(7, proc) == f"{BOOT}/7/4711"
    assert own(8, proc) == ""


@pytest.mark.parametrize(
    ("owner", "gone"),
    [
        (f"{BOOT}/7/4711", False),  # it runs
        (f"{BOOT}/7/4710", True),  # another has its number now
        (f"{BOOT}/8/4711", True),
        ("another/7/4711", False),  # of another machine, or another boot: who knows
        ("", False),
        (f"{BOOT}/x/1", False),
    ],
)
def test_only_what_has_surely_ended_is_gone(proc, owner, gone):
    process(proc, 7, "4711")
    assert is_gone(owner, proc) is gone


def test_where_nothing_can_be_told_nobody_is_gone(tmp_path):
    assert own(7, tmp_path) == ""
    assert not is_gone(f"{BOOT}/7/4711", tmp_path)


def test_this_process_is_not_gone():
    assert own()
    assert not is_gone(own())
