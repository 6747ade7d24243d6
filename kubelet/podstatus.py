"""From what the runtime has to a PodStatus. Pure.

Upstream counterpart: the kubelet's generateAPIPodStatus, getPhase and the condition generators;
texts and reasons are those that clients match on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kubelet.podplan import Memory, Waiting, should_restart
from kubelet.podspec import qos_class
from kubelet.runtime.base import CREATED, EXITED, RUNNING, ObservedPod, RuntimeContainer
from podyard.api.types import Container, ContainerStatus, Pod, PodCondition, PodStatus, core_v1

_POD_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a pod's status says of its node."""

    host_ips: tuple[str, ...]
    runtime_name: str = "containerd"


def pod_status(
    pod: Pod, observed: ObservedPod, memory: Memory, node: NodeFacts, now_s: float, *, ending: bool = False
) -> PodStatus:
    """The status that the pod should have.

    Args:
        pod: with its present status: transition times of unchanged conditions are kept.
        observed: what the runtime has of it.
        ending: the pod must end; containers that have stopped are not going to run again.
    """
    status = PodStatus()
    status.qosClass = qos_class(pod)
    init = [
        _container_status(pod, c, observed, memory, node, init=True, ending=ending)
        for c in pod.spec.initContainers
    ]
    main = [
        _container_status(pod, c, observed, memory, node, init=False, ending=ending)
        for c in pod.spec.containers
    ]
    status.initContainerStatuses.extend(init)
    status.containerStatuses.extend(main)
    status.phase = _phase(pod, init, main, ending=ending)
    status.reason, status.message = pod.status.reason, pod.status.message
    for address in node.host_ips:
        status.hostIPs.add(ip=address)
    status.hostIP = node.host_ips[0] if node.host_ips else ""
    addresses = node.host_ips if pod.spec.hostNetwork and observed.sandbox else _pod_ips(observed, pod)
    for address in addresses:
        status.podIPs.add(ip=address)
    status.podIP = addresses[0] if addresses else ""
    if pod.status.HasField("startTime"):
        status.startTime.CopyFrom(pod.status.startTime)
    else:
        status.startTime.seconds = int(now_s)
    status.observedGeneration = pod.metadata.generation
    status.conditions.extend(_conditions(pod, status, observed, now_s))
    return status


def _pod_ips(observed: ObservedPod, pod: Pod) -> tuple[str, ...]:
    sandbox = observed.sandbox
    if sandbox is not None and sandbox.ready:
        return sandbox.ips
    # A pod that has ended keeps its last address in view, as upstream's does.
    return tuple(entry.ip for entry in pod.status.podIPs)


def _container_status(
    pod: Pod,
    container: Container,
    observed: ObservedPod,
    memory: Memory,
    node: NodeFacts,
    *,
    init: bool,
    ending: bool,
) -> ContainerStatus:
    made = observed.of(container.name)
    status = ContainerStatus(name=container.name, image=container.image, ready=False, restartCount=0)
    status.started = False
    waiting = memory.waiting.get(container.name)
    if not made:
        status.imageID = ""
        _set_waiting(status, waiting or _not_yet(pod, observed, init=init, ending=ending))
        return _with_resources(status, container)
    latest = made[0]
    status.restartCount = latest.attempt
    status.image = latest.image or container.image
    status.imageID = latest.image_id
    status.containerID = f"{node.runtime_name}://{latest.id}"
    previous = next((other for other in made[1:] if other.state == EXITED), None)
    if latest.state == RUNNING:
        status.state.running.startedAt.seconds = int(latest.started_at_s)
        status.ready = not init
        status.started = True
    elif latest.state == EXITED:
        restarts = should_restart(pod.spec.restartPolicy or "Always", latest) and not init
        if waiting is not None and restarts and not ending:
            _set_waiting(status, waiting)
            previous = latest
        else:
            _set_terminated(status.state, latest, node)
            status.ready = init and latest.exit_code == 0
    elif latest.state == CREATED:
        _set_waiting(status, waiting or Waiting("ContainerCreating"))
    else:
        _set_waiting(status, waiting or Waiting("ContainerStatusUnknown"))
    if previous is not None:
        _set_terminated(status.lastState, previous, node)
    return _with_resources(status, container)


def _not_yet(pod: Pod, observed: ObservedPod, *, init: bool, ending: bool) -> Waiting:
    if pod.spec.initContainers and (not init or observed.sandbox is None):
        return Waiting("PodInitializing")
    return Waiting("ContainerCreating")


def _set_waiting(status: ContainerStatus, waiting: Waiting) -> None:
    status.state.waiting.reason = waiting.reason
    status.state.waiting.message = waiting.message


def _set_terminated(state: core_v1.ContainerState, container: RuntimeContainer, node: NodeFacts) -> None:
    ended: Any = state.terminated
    ended.exitCode = container.exit_code
    ended.reason = container.reason or ("Completed" if container.exit_code == 0 else "Error")
    ended.message = container.message
    ended.startedAt.seconds = int(container.started_at_s)
    ended.finishedAt.seconds = int(container.finished_at_s)
    ended.containerID = f"{node.runtime_name}://{container.id}"


def _with_resources(status: ContainerStatus, container: Container) -> ContainerStatus:
    if container.resources.requests:
        for name, quantity in container.resources.requests.items():
            status.allocatedResources[name].CopyFrom(quantity)
    status.resources.CopyFrom(container.resources)
    for mount in container.volumeMounts:
        entry = status.volumeMounts.add(name=mount.name, mountPath=mount.mountPath, readOnly=mount.readOnly)
        if mount.readOnly:
            entry.recursiveReadOnly = mount.recursiveReadOnly or "Disabled"
    return status


def _phase(pod: Pod, init: list[ContainerStatus], main: list[ContainerStatus], *, ending: bool) -> str:
    """Upstream: getPhase. A pod in its last phase stays there."""
    if pod.status.phase in ("Succeeded", "Failed"):
        return pod.status.phase
    policy = pod.spec.restartPolicy or "Always"
    if _any_init_failed(init) and policy == "Never":
        return "Failed"
    running = sum(1 for status in main if status.state.HasField("running"))
    ended = [status for status in main if status.state.HasField("terminated")]
    waiting = [status for status in main if status.state.HasField("waiting")]
    fresh = [status for status in waiting if not status.lastState.HasField("terminated")]
    if any(not _init_done(status) for status in init) and not ending:
        return "Pending"
    if fresh and not ending:
        return "Pending"
    if running:
        return "Running"
    if ending and not waiting and ended:
        return "Succeeded" if all(s.state.terminated.exitCode == 0 for s in ended) else "Failed"
    if ending:
        return "Failed" if not running and not fresh else pod.status.phase or "Pending"
    if not ended:
        return "Running" if waiting else "Pending"
    if policy == "Always" or waiting:
        return "Running"
    if all(status.state.terminated.exitCode == 0 for status in ended):
        return "Succeeded"
    return "Failed" if policy == "Never" else "Running"


def _init_done(status: ContainerStatus) -> bool:
    return status.state.HasField("terminated") and status.state.terminated.exitCode == 0


def _any_init_failed(init: Iterable[ContainerStatus]) -> bool:
    return any(s.state.HasField("terminated") and s.state.terminated.exitCode != 0 for s in init)


def _conditions(pod: Pod, status: PodStatus, observed: ObservedPod, now_s: float) -> list[PodCondition]:
    sandbox = observed.sandbox
    has_sandbox = sandbox is not None and sandbox.ready and (bool(sandbox.ips) or pod.spec.hostNetwork)
    ready = _containers_ready(status)
    wanted: dict[str, tuple[bool, str, str]] = {
        "PodReadyToStartContainers": (has_sandbox, "", ""),
        "Initialized": _initialized(status),
        "Ready": _pod_ready(pod, ready),
        "ContainersReady": ready,
        "PodScheduled": (True, "", ""),
    }
    old = {condition.type: condition for condition in pod.status.conditions}
    made = []
    for name in _POD_CONDITIONS:
        true, reason, message = wanted[name]
        condition = PodCondition(
            type=name, status="True" if true else "False", reason=reason, message=message
        )
        condition.observedGeneration = pod.metadata.generation
        known = old.get(name)
        if known is not None and known.status == condition.status:
            condition.lastTransitionTime.CopyFrom(known.lastTransitionTime)
        else:
            condition.lastTransitionTime.seconds = int(now_s)
        made.append(condition)
    # Conditions of others (disruption targets, readiness gates) stay as they are.
    made.extend(condition for name, condition in old.items() if name not in wanted)
    return made


def _initialized(status: PodStatus) -> tuple[bool, str, str]:
    undone = [entry.name for entry in status.initContainerStatuses if not _init_done(entry)]
    if status.phase == "Succeeded":
        return True, "PodCompleted", ""
    if undone:
        return False, "ContainersNotInitialized", f"containers with incomplete status: [{' '.join(undone)}]"
    return True, "", ""


def _containers_ready(status: PodStatus) -> tuple[bool, str, str]:
    if status.phase == "Succeeded":
        return False, "PodCompleted", ""
    if status.phase == "Failed":
        return False, "PodFailed", ""
    unready = [entry.name for entry in status.containerStatuses if not entry.ready]
    if unready:
        return False, "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    return True, "", ""


def _pod_ready(pod: Pod, containers: tuple[bool, str, str]) -> tuple[bool, str, str]:
    if not containers[0]:
        return containers
    have = {condition.type: condition.status for condition in pod.status.conditions}
    missing = []
    for gate in pod.spec.readinessGates:
        if gate.conditionType not in have:
            missing.append(
                f'corresponding condition of pod readiness gate "{gate.conditionType}" does not exist.'
            )
        elif have[gate.conditionType] != "True":
            have_it = have[gate.conditionType]
            missing.append(
                f'the status of pod readiness gate "{gate.conditionType}" is not "True", but {have_it}'
            )
    if missing:
        return False, "ReadinessGatesNotReady", ", ".join(missing)
    return True, "", ""
