"""The verdict on a long run: what grows is named, what only wavers is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cluster.soak import Look, Process, grown, table

KUBELET = ("p-worker-1", "kubelet", 10)


def look(memory_mb: float = 70.0, descriptors: int = 14, threads: int = 9, **other: object) -> Look:
    process = Process(memory_mb, descriptors, threads)
    plain = Look({KUBELET: process}, connections={"p-worker-1": 5}, watches=70, left=())
    return replace(plain, **other)  # type: ignore[arg-type]


STEADY = [look(40.0), look(60.0), look(70.0), look(70.2), look(69.9), look(70.1)]


def test_warming_up_is_not_growth() -> None:
    assert grown(STEADY) == []


def test_wavering_is_not_growth() -> None:
    assert grown([look(memory_mb=70 + 2 * (n % 3), descriptors=14 + n % 4) for n in range(30)]) == []


@pytest.mark.parametrize(
    ("looks", "said"),
    [
        (
            [look(memory_mb=70 + n) for n in range(60)],
            "p-worker-1 kubelet: memory from 99.5 to 119.5 MB",
        ),
        ([look(descriptors=14 + n) for n in range(30)], "p-worker-1 kubelet: descriptors: from 28 to 38"),
        ([look(threads=9 + n) for n in range(30)], "p-worker-1 kubelet: threads: from 24 to 34"),
        ([look(watches=70 + n) for n in range(30)], "watches: from 84.5 to 94.5"),
        (
            [look(connections={"p-worker-1": n}) for n in range(30)],
            "p-worker-1: connections: from 14.5 to 24.5",
        ),
        ([*STEADY, look(left=("p-worker-1: netns cni-1",))], "left on a node: p-worker-1: netns cni-1"),
    ],
)
def test_growth_is_named(looks: list[Look], said: str) -> None:
    assert grown(looks) == [said]


def test_a_process_that_came_anew_is_not_compared() -> None:
    looks = [look() for _ in range(6)] + [
        look(processes={("p-worker-1", "kubelet", 99): Process(200.0, 80, 30)}) for _ in range(3)
    ]
    assert grown(looks) == []


def test_too_few_looks_are_no_verdict() -> None:
    with pytest.raises(AssertionError, match="too few"):
        grown(STEADY[:5])


def test_table() -> None:
    lines = table(STEADY).splitlines()
    assert lines[0].split() == ["CONTAINER", "PROCESS", "MB", "DESCRIPTORS", "THREADS"]
    assert lines[1] == "p-worker-1  kubelet  40.0 -> 70.1  14 -> 14     9 -> 9"
    assert lines[2:] == ["watches 70 -> 70", "connections 5 -> 5"]
