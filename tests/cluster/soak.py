"""What a cluster holds at a moment, and what of it has grown between moments that should be alike.

`take` looks into every container: memory, file descriptors and threads of each process, connections, and on
nodes all that pods leave behind. `grown` is the verdict over a run of such looks, each taken when the churn's
pods were gone again.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tests.cluster.live import Live, aligned, leftovers, process_name

# What a process may grow by after it has warmed up, whatever the length of the run.
MEMORY_SHARE = 0.05
MEMORY_MB = 4.0
# How far counts may stray: a request that is just under way has a connection and a descriptor.
SLACK = 4
# The least number of looks that a verdict needs.
LOOKS = 6

# One JSON line: each process but this one, by pid and command, and the connections that TCP holds open.
_LOOK = r"""
import glob, json, os
found = {}
for path in glob.glob("/proc/[0-9]*"):
    pid = int(path[6:])
    if pid == os.getpid():
        continue
    try:
        words = open(path + "/cmdline", "rb").read().decode().split("\0")
        if not words[0]:
            continue
        memory = next(int(l.split()[1]) for l in open(path + "/smaps_rollup") if l.startswith("Pss:"))
        threads = len(os.listdir(path + "/task"))
        found[pid] = [" ".join(words), memory / 1024, len(os.listdir(path + "/fd")), threads]
    except (OSError, StopIteration):
        continue
connections = sum(line.split()[3] == "01" for name in ("tcp", "tcp6") for line in open("/proc/net/" + name))
print(json.dumps([found, connections]))
"""
_PYTHON = "/opt/podyard/venv/bin/python"


@dataclass(frozen=True, slots=True)
class Process:
    """One process: `memory_mb` is its PSS."""

    memory_mb: float
    descriptors: int
    threads: int


@dataclass(frozen=True)
class Look:
    """One moment.

    Attributes:
        processes: (container, command, pid) -> what it holds.
        connections: container -> open TCP connections.
        watches: those that the API servers count.
        left: what nodes still have of pods.
    """

    processes: dict[tuple[str, str, int], Process]
    connections: dict[str, int]
    watches: int
    left: tuple[str, ...]


def take(live: Live) -> Look:
    """Looks into every container of the cluster."""
    processes: dict[tuple[str, str, int], Process] = {}
    connections = {}
    left: list[str] = []
    for container in live.containers():
        found, connections[container] = json.loads(live.in_container(container, _PYTHON, "-c", _LOOK))
        for pid, (line, *values) in found.items():
            processes[container, process_name(line), int(pid)] = Process(*values)
    for node in live.workers():
        left += [f"{node}: {line}" for line in leftovers(live, node)]
    lines = live.kubectl("get", "--raw", "/metrics").splitlines()
    counts = [line.rpartition(" ")[2] for line in lines if line.startswith("apiserver_longrunning_requests{")]
    return Look(processes, connections, round(sum(map(float, counts))), tuple(left))


def grown(looks: Sequence[Look]) -> list[str]:
    """What has grown between the middle and the last third of a run; the first third is for warming up.

    Medians are compared, so one look amid some work of the moment decides nothing. Only processes that are in
    all looks of both thirds count: who ended has given everything back.
    """
    assert len(looks) >= LOOKS, f"{len(looks)} looks are too few to tell"
    third = len(looks) // 3
    early, late = looks[-2 * third : -third], looks[-third:]
    found = []
    for key in sorted(set.intersection(*(set(look.processes) for look in (*early, *late)))):
        name = f"{key[0]} {key[1]}"
        before, after = (_median_process([look.processes[key] for look in part]) for part in (early, late))
        limit_mb = before.memory_mb * (1 + MEMORY_SHARE) + MEMORY_MB
        if after.memory_mb > limit_mb:
            found.append(f"{name}: memory from {before.memory_mb:.1f} to {after.memory_mb:.1f} MB")
        found += _count(f"{name}: descriptors", before.descriptors, after.descriptors)
        found += _count(f"{name}: threads", before.threads, after.threads)
    for container in early[0].connections:
        before_count, after_count = (
            statistics.median(look.connections.get(container, 0) for look in part) for part in (early, late)
        )
        found += _count(f"{container}: connections", before_count, after_count)
    found += _count("watches", *(statistics.median(look.watches for look in part) for part in (early, late)))
    return found + [f"left on a node: {line}" for line in looks[-1].left]


def _median_process(of: Sequence[Process]) -> Process:
    return Process(
        statistics.median(one.memory_mb for one in of),
        round(statistics.median(one.descriptors for one in of)),
        round(statistics.median(one.threads for one in of)),
    )


def _count(what: str, before: float, after: float) -> list[str]:
    return [f"{what}: from {before:g} to {after:g}"] if after > before + SLACK else []


def table(looks: Sequence[Look]) -> str:
    """The run in lines: memory, descriptors and threads of each process, at its begin and its end."""
    first, last = looks[0], looks[-1]
    rows = [("CONTAINER", "PROCESS", "MB", "DESCRIPTORS", "THREADS")]
    for key in sorted(set(first.processes) & set(last.processes)):
        before, after = first.processes[key], last.processes[key]
        rows.append(
            (
                key[0],
                key[1],
                f"{before.memory_mb:.1f} -> {after.memory_mb:.1f}",
                f"{before.descriptors} -> {after.descriptors}",
                f"{before.threads} -> {after.threads}",
            )
        )
    lines = aligned(rows)
    lines.append(f"watches {first.watches} -> {last.watches}")
    lines.append(f"connections {sum(first.connections.values())} -> {sum(last.connections.values())}")
    return "\n".join(lines)
