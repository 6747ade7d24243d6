"""Counts and commands as users read them."""

from __future__ import annotations

import re
from pathlib import Path

import podyard
from podyard.cluster.wording import counted, named, podyard_on

# What is put in, a number as a rule, and a plural behind it.
_ALWAYS_PLURAL = re.compile(
    r"\{(?!engine\.os_type)[^}]*\} (nodes|containers|volumes|members|images|tags|files)\b"
)


def test_one_is_one_and_every_other_number_is_many() -> None:
    assert [counted(number, "node") for number in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]


def test_few_are_named() -> None:
    assert named([], "node") == "0 nodes"
    assert named(["a"], "node") == "1 node (a)"
    assert named(["a", "b"], "node") == "2 nodes (a, b)"
    assert named(list("abcde"), "node") == "5 nodes"


def test_a_command_names_every_cluster_but_the_default_one() -> None:
    assert (podyard_on("podyard"), podyard_on("lab")) == ("podyard", "podyard --name lab")


def test_no_text_of_the_command_line_counts_by_itself() -> None:
    folder = Path(podyard.__path__[0])
    for part in ("cluster", "cli"):
        for path in (folder / part).glob("*.py"):
            for line in path.read_text(encoding="utf-8").splitlines():
                assert not _ALWAYS_PLURAL.search(line), f"{path.name}: {line.strip()}"
