"""What pods leave on a node: found again by whoever comes after a kill, and removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubelet.runtime.base import ObservedPod
from kubelet.traces import Traces
from podyard.api.types import Pod

QOS = {"guaranteed": "", "burstable": "/burstable", "besteffort": "/besteffort"}


def node(tmp_path: Path, hierarchies: tuple[str, ...]) -> tuple[Traces, Path, Path]:
    """A node with logs and cgroups of one pod of each class; its uid is the class."""
    logs, cgroups = tmp_path / "logs", tmp_path / "cgroup"
    for uid, subtree in QOS.items():
        (logs / f"space_name_{uid}" / "main").mkdir(parents=True)
        (logs / f"space_name_{uid}" / "main" / "0.log").write_text("a line")
        for hierarchy in hierarchies:
            (cgroups / hierarchy / f"kubepods{subtree}" / f"pod{uid}" / "container").mkdir(parents=True)
    return Traces(logs, cgroups), logs, cgroups


def test_nothing_is_known_of_an_empty_node(tmp_path: Path) -> None:
    assert Traces(tmp_path / "none", tmp_path / "nothing").known_pods() == []


@pytest.mark.parametrize("hierarchies", [("",), ("cpu", "memory")], ids=["v2", "v1"])
def test_every_trace_is_known_and_goes_alone(tmp_path: Path, hierarchies: tuple[str, ...]) -> None:
    traces, logs, cgroups = node(tmp_path, hierarchies)
    left = sorted(QOS)
    assert traces.known_pods() == left
    for uid in QOS:
        traces.remove(ObservedPod(uid), None)
        left.remove(uid)
        assert traces.known_pods() == left
    assert list(logs.rglob("*")) + list(cgroups.rglob("pod*")) == []


def test_cgroups_alone_are_a_trace_and_so_are_logs(tmp_path: Path) -> None:
    traces, logs, cgroups = node(tmp_path, ("",))
    (logs / "space_name_burstable" / "main" / "0.log").unlink()
    (logs / "space_name_burstable" / "main").rmdir()
    (logs / "space_name_burstable").rmdir()
    (cgroups / "kubepods/besteffort/podbesteffort/container").rmdir()
    (cgroups / "kubepods/besteffort/podbesteffort").rmdir()
    assert traces.known_pods() == sorted(QOS)


def test_a_pod_known_by_its_object_goes_the_same_way(tmp_path: Path) -> None:
    traces, _, _ = node(tmp_path, ("",))
    pod = Pod(metadata={"name": "name", "namespace": "space", "uid": "besteffort"})
    traces.remove(ObservedPod("besteffort"), pod)
    assert traces.known_pods() == ["burstable", "guaranteed"]
