"""The node's own objects: status, conditions, lease."""

from __future__ import annotations

import pytest

from kubelet.node import Machine, labels_to_mend, new_node, node_lease, node_status, same_but_heartbeat
from kubelet.runtime.base import ImageInfo, RuntimeStatus
from kubelet.statuses import status_patch
from podyard.api.types import Node, Taint

MACHINE = Machine(4, 8 << 30, 100 << 30, "machine", "system", "boot", "6.1", "Debian", "amd64")
UP = RuntimeStatus(ready=True, network_ready=True, name="containerd", version="1.7.24")
NO_NETWORK = RuntimeStatus(
    ready=True,
    network_ready=False,
    reason="NetworkPluginNotReady",
    message="Network plugin returns error: cni plugin not initialized",
    name="containerd",
    version="1.7.24",
)


def status_of(node: Node, runtime: RuntimeStatus = UP, now_s: float = 100.0, images=()):
    return node_status(node, MACHINE, runtime, images, address="192.0.2.1", port=10250, now_s=now_s)


def node(status=None) -> Node:
    made = new_node("node-1", MACHINE, {"zone": "a"})
    if status is not None:
        made.status.CopyFrom(status)
    return made


def condition(status, name: str):
    (found,) = [entry for entry in status.conditions if entry.type == name]
    return found


def test_a_node_registers_with_its_labels():
    labels = node().metadata.labels
    assert labels["kubernetes.io/hostname"] == "node-1"
    assert (labels["kubernetes.io/os"], labels["kubernetes.io/arch"], labels["zone"]) == (
        "linux",
        "amd64",
        "a",
    )


def test_a_node_registers_with_its_taints():
    taint = Taint(key="dedicated", value="gpu", effect="NoSchedule")
    assert list(new_node("node-1", MACHINE, {}, [taint]).spec.taints) == [taint]
    assert not node().spec.taints


def test_what_the_machine_has_and_what_pods_may_have():
    status = status_of(node())
    capacity = {name: amount.string for name, amount in status.capacity.items()}
    assert capacity == {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "100Gi", "pods": "110"}
    assert status.allocatable["memory"].string == "8092Mi"
    assert status.allocatable["cpu"].string == "4"
    addresses = [(entry.type, entry.address) for entry in status.addresses]
    assert addresses == [("InternalIP", "192.0.2.1"), ("Hostname", "node-1")]
    assert status.daemonEndpoints.kubeletEndpoint.Port == 10250
    assert status.nodeInfo.containerRuntimeVersion == "containerd://1.7.24"


@pytest.mark.parametrize(
    ("runtime", "ready", "reason", "message"),
    [
        (UP, "True", "KubeletReady", "kubelet is posting ready status"),
        (
            NO_NETWORK,
            "False",
            "KubeletNotReady",
            "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady "
            "message:Network plugin returns error: cni plugin not initialized",
        ),
        (
            RuntimeStatus(False, False, "RuntimeDown", "connection refused"),
            "False",
            "KubeletNotReady",
            "container runtime is down: connection refused",
        ),
    ],
)
def test_ready_says_why_not(runtime, ready, reason, message):
    found = condition(status_of(node(), runtime), "Ready")
    assert (found.status, found.reason, found.message) == (ready, reason, message)


def test_times_move_with_changes_and_heartbeats_always():
    first = status_of(node(), now_s=100.0)
    later = status_of(node(first), now_s=200.0)
    assert condition(later, "Ready").lastTransitionTime.seconds == 100
    assert condition(later, "Ready").lastHeartbeatTime.seconds == 200
    assert same_but_heartbeat(first, later)
    # As the server answers a patch: conditions in another order, no empty text.
    shuffled = node(first).status
    shuffled.conditions.sort(key=lambda entry: entry.type)
    shuffled.nodeInfo.kubeProxyVersion = ""
    assert same_but_heartbeat(shuffled, later)
    down = status_of(node(later), NO_NETWORK, now_s=300.0)
    assert condition(down, "Ready").lastTransitionTime.seconds == 300
    assert condition(down, "MemoryPressure").lastTransitionTime.seconds == 100
    assert not same_but_heartbeat(later, down)


def test_conditions_of_others_stay():
    known = node(status_of(node()))
    known.status.conditions.add(type="NetworkUnavailable", status="False", reason="RouteCreated")
    assert condition(status_of(known), "NetworkUnavailable").reason == "RouteCreated"


def test_what_others_say_of_a_node_stays():
    known = node(status_of(node()))
    known.status.capacity["example.com/dongle"].string = "4"
    known.status.allocatable["example.com/gone"].string = "1"
    known.status.capacity["cpu"].string = "1"
    known.status.volumesInUse.append("kubernetes.io/csi/a")
    status = status_of(known)
    # Upstream: pods may have all of it, and nothing of what nobody has.
    assert status.capacity["example.com/dongle"].string == "4"
    assert status.allocatable["example.com/dongle"].string == "4"
    assert "example.com/gone" not in status.allocatable
    assert status.capacity["cpu"].string == "4"
    assert list(status.volumesInUse) == ["kubernetes.io/csi/a"]


def test_what_is_sent_is_what_differs():
    before = status_of(node(), now_s=100.0)
    assert status_patch(before, before) is None
    known = node(before)
    known.status.capacity["example.com/dongle"].string = "4"
    known.status.allocatable["example.com/gone"].string = "1"
    known.status.conditions.add(type="NetworkUnavailable", status="False")
    later = status_of(known, now_s=200.0)
    patch = status_patch(known.status, later)
    assert patch["allocatable"] == {"example.com/dongle": "4", "example.com/gone": None}
    heard = {entry["type"] for entry in patch["conditions"]}
    assert heard == {"MemoryPressure", "DiskPressure", "PIDPressure", "Ready"}
    assert set(patch) == {"allocatable", "conditions"}
    del later.addresses[0]
    (first, host) = status_patch(known.status, later)["addresses"]
    assert (first, host["type"]) == ({"$patch": "replace"}, "Hostname")


def test_the_largest_images_are_listed():
    images = [
        ImageInfo(f"i{size}", tuple(f"n{size}-{part}" for part in range(9)), size) for size in range(60)
    ]
    listed = status_of(node(), images=images).images
    assert [image.sizeBytes for image in listed] == list(range(59, 9, -1))
    assert len(listed[0].names) == 5


def test_a_lease_belongs_to_its_node_and_is_renewed():
    subject = node()
    subject.metadata.uid = "uid-1"
    lease = node_lease(subject, 100.25)
    (owner,) = lease.metadata.ownerReferences
    assert (owner.kind, owner.name, owner.uid) == ("Node", "node-1", "uid-1")
    assert (lease.spec.holderIdentity, lease.spec.leaseDurationSeconds) == ("node-1", 40)
    assert (lease.spec.renewTime.seconds, lease.spec.renewTime.nanos) == (100, 250_000_000)
    lease.metadata.resourceVersion = "5"
    again = node_lease(subject, 110.0, lease)
    assert (again.metadata.resourceVersion, again.spec.renewTime.seconds) == ("5", 110)
    assert lease.spec.renewTime.seconds == 100


@pytest.mark.parametrize(
    ("wanted", "present", "change"),
    [
        ({}, {}, {}),
        # Only default labels are set right; what a user has said of others stays, and what is not ours too.
        ({"zone": "a"}, {"zone": "b"}, {}),
        ({"zone": "a"}, {"zone": None, "more": "x"}, {}),
        (
            {"topology.kubernetes.io/zone": "a"},
            {"topology.kubernetes.io/zone": "b"},
            {"topology.kubernetes.io/zone": "a"},
        ),
        ({}, {"topology.kubernetes.io/zone": "b"}, {}),
        ({}, {"kubernetes.io/hostname": "other"}, {"kubernetes.io/hostname": "node-1"}),
        ({}, {"kubernetes.io/arch": None}, {"kubernetes.io/arch": "amd64"}),
        (
            {"topology.kubernetes.io/region": ""},
            {"topology.kubernetes.io/region": "r"},
            {"topology.kubernetes.io/region": None},
        ),
        ({"topology.kubernetes.io/region": ""}, {"topology.kubernetes.io/region": None}, {}),
    ],
)
def test_a_kubelet_that_comes_back_sets_only_its_default_labels_right(wanted, present, change) -> None:
    mine = new_node("node-1", MACHINE, wanted)
    there = new_node("node-1", MACHINE, wanted)
    for key, value in present.items():
        there.metadata.labels.pop(key, None)
        if value is not None:
            there.metadata.labels[key] = value
    assert labels_to_mend(mine, there) == change
