"""The node's own objects: registration, status, lease.

`node_status` is pure: facts in, NodeStatus out, with transition times kept. The lease is the
heartbeat (every 10 s, 40 s long); the status is written when it changes and every five minutes.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubelet.runtime.base import ImageInfo, RuntimeStatus
from podyard.api import codec, quantity
from podyard.api.node_labels import DEFAULT_LABELS
from podyard.api.types import Lease, Node, NodeCondition, Taint, core_v1

KUBELET_VERSION = "v1.36.0"
LEASE_NAMESPACE = "kube-node-lease"
LEASE_DURATION_S = 40
LEASE_RENEW_S = 10.0
STATUS_REPORT_S = 300.0
MAX_PODS = 110
_MAX_IMAGES = 50
# Upstream: evictionHard memory.available, kept back from allocatable.
_RESERVED_MEMORY_BYTES = 100 * 1024 * 1024
# Of the status; of its resources only those that the machine has.
_OWN_FIELDS = ("conditions", "addresses", "daemonEndpoints", "nodeInfo", "images")
_ARCHITECTURES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "ppc64le": "ppc64le",
    "s390x": "s390x",
}


@dataclass(frozen=True, slots=True)
class Machine:
    """What the node's machine is."""

    cpus: int
    memory_bytes: int
    disk_bytes: int
    machine_id: str
    system_uuid: str
    boot_id: str
    kernel: str
    os_image: str
    architecture: str


def read_machine(disk: Path) -> Machine:
    """Reads the facts from the system.

    Args:
        disk: a path on the file system that counts as ephemeral storage.
    """
    memory = next(
        int(line.split()[1]) * 1024
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("MemTotal:")
    )
    space = os.statvfs(disk if disk.exists() else "/")
    release = dict(line.split("=", 1) for line in _text("/etc/os-release").splitlines() if "=" in line)
    machine = platform.machine()
    return Machine(
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=memory,
        disk_bytes=space.f_blocks * space.f_frsize,
        machine_id=_text("/etc/machine-id"),
        system_uuid=_text("/sys/class/dmi/id/product_uuid") or _text("/etc/machine-id"),
        boot_id=_text("/proc/sys/kernel/random/boot_id"),
        kernel=platform.release(),
        os_image=release.get("PRETTY_NAME", "Linux").strip('"'),
        architecture=_ARCHITECTURES.get(machine, machine),
    )


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _own_labels(name: str, machine: Machine) -> dict[str, str]:
    """The labels that a node has by itself."""
    return {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": machine.architecture,
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": machine.architecture,
    }


def labels_to_mend(wanted: Node, present: Node) -> dict[str, str | None]:
    """What a kubelet that comes back changes in the labels of its registered node; None takes one away.

    Only default labels that it has a value for: whatever a user has changed of the others since stays.

    Source: pkg/kubelet updateDefaultLabels.
    """
    change: dict[str, str | None] = {}
    for key in sorted(DEFAULT_LABELS & set(wanted.metadata.labels)):
        should = wanted.metadata.labels[key] or None  # upstream keeps no empty one
        if should != present.metadata.labels.get(key):
            change[key] = should
    return change


def new_node(name: str, machine: Machine, labels: dict[str, str], taints: Sequence[Taint] = ()) -> Node:
    """The node as it registers itself."""
    labels = {**_own_labels(name, machine), **labels}
    annotations = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return Node(metadata=metadata, spec={"taints": list(taints)})


def node_status(
    node: Node,
    machine: Machine,
    runtime: RuntimeStatus,
    images: Sequence[ImageInfo],
    *,
    address: str,
    port: int,
    now_s: float,
) -> core_v1.NodeStatus:
    """The status that the node should have: what others have written of it stays.

    Args:
        node: with its present status, whose transition times are kept.
        port: of the kubelet's server.
    """
    status = core_v1.NodeStatus()
    status.CopyFrom(node.status)
    for name in _OWN_FIELDS:
        status.ClearField(name)
    _set_resources(status, machine)
    status.conditions.extend(_conditions(node, runtime, now_s))
    status.addresses.add(type="InternalIP", address=address)
    status.addresses.add(type="Hostname", address=node.metadata.name)
    status.daemonEndpoints.kubeletEndpoint.Port = port
    info: Any = status.nodeInfo
    info.machineID, info.systemUUID, info.bootID = machine.machine_id, machine.system_uuid, machine.boot_id
    info.kernelVersion, info.osImage = machine.kernel, machine.os_image
    info.containerRuntimeVersion = f"{runtime.name}://{runtime.version}"
    info.kubeletVersion = KUBELET_VERSION
    info.operatingSystem, info.architecture = "linux", machine.architecture
    for image in sorted(images, key=lambda image: -image.size_bytes)[:_MAX_IMAGES]:
        status.images.add(names=image.names[:5], sizeBytes=image.size_bytes)
    return status


def _set_resources(status: core_v1.NodeStatus, machine: Machine) -> None:
    """Sets what the machine has; of what others say that it has too, pods may have all.

    Source: pkg/kubelet/nodestatus MachineInfo.
    """
    kib = quantity.BINARY_SI
    capacity = {
        "cpu": quantity.from_value(machine.cpus),
        "memory": quantity.from_value(machine.memory_bytes, kib),
        "ephemeral-storage": quantity.from_value(machine.disk_bytes, kib),
        "pods": quantity.from_value(MAX_PODS),
    }
    for name, amount in capacity.items():
        status.capacity[name].CopyFrom(quantity.message(amount))
    for name in set(status.allocatable) - set(status.capacity):
        del status.allocatable[name]
    for name in status.capacity:
        status.allocatable[name].CopyFrom(status.capacity[name])
    usable = max(machine.memory_bytes - _RESERVED_MEMORY_BYTES, 0)
    status.allocatable["memory"].CopyFrom(quantity.message(quantity.from_value(usable, kib)))


def _conditions(node: Node, runtime: RuntimeStatus, now_s: float) -> list[NodeCondition]:
    ready = runtime.ready and runtime.network_ready
    detail = f"reason:{runtime.reason} message:{runtime.message}"
    why = f"container runtime network not ready: NetworkReady=false {detail}"
    if not runtime.ready:
        why = (
            f"container runtime is down: {runtime.message}"
            if runtime.message
            else "container runtime is down"
        )
    wanted = [
        ("MemoryPressure", False, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", False, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", False, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", True, "KubeletReady", "kubelet is posting ready status")
        if ready
        else ("Ready", False, "KubeletNotReady", why),
    ]
    old = {condition.type: condition for condition in node.status.conditions}
    made = []
    for name, true, reason, message in wanted:
        condition = NodeCondition(
            type=name, status="True" if true else "False", reason=reason, message=message
        )
        condition.lastHeartbeatTime.seconds = int(now_s)
        known = old.get(name)
        if known is not None and known.status == condition.status:
            condition.lastTransitionTime.CopyFrom(known.lastTransitionTime)
        else:
            condition.lastTransitionTime.seconds = int(now_s)
        made.append(condition)
    made.extend(condition for name, condition in old.items() if name not in {entry[0] for entry in wanted})
    return made


def same_but_heartbeat(one: core_v1.NodeStatus, other: core_v1.NodeStatus) -> bool:
    """Whether two statuses say the same, whenever they were taken."""

    def bare(status: core_v1.NodeStatus) -> dict[str, Any]:
        # As JSON says it: a patch leaves no trace of which empty fields were set, and may order conditions.
        said = codec.to_dict(status)
        said["conditions"] = {
            entry["type"]: {key: value for key, value in entry.items() if key != "lastHeartbeatTime"}
            for entry in said.get("conditions", ())
        }
        return said

    return bare(one) == bare(other)


def node_lease(node: Node, now_s: float, known: Lease | None = None) -> Lease:
    """The lease, renewed now."""
    lease = Lease()
    if known is not None:
        lease.CopyFrom(known)
    else:
        lease.metadata.name, lease.metadata.namespace = node.metadata.name, LEASE_NAMESPACE
        lease.metadata.ownerReferences.add(
            apiVersion="v1", kind="Node", name=node.metadata.name, uid=node.metadata.uid
        )
    lease.spec.holderIdentity = node.metadata.name
    lease.spec.leaseDurationSeconds = LEASE_DURATION_S
    lease.spec.renewTime.seconds = int(now_s)
    lease.spec.renewTime.nanos = int(now_s % 1 * 1e6) * 1000
    return lease
