"""From what the runtime has to a PodStatus. Pure.

Upstream counterpart: the kubelet's generateAPIPodStatus, getPhase and the condition generators;
texts and reasons are those that clients match on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubelet.podplan import Memory, Waiting, restart_policy_of, should_restart
from kubelet.podspec import qos_class
from kubelet.probes import Health, is_ready, is_started
from kubelet.runtime.base import CREATED, EXITED, RUNNING, ObservedPod, RuntimeContainer
from podyard.api.types import Container, ContainerStatus, Pod, PodCondition, PodStatus, core_v1

_KILLED = 137
_DEADLINE_TEXT = "Pod was active on the node longer than the specified deadline"
_SETTLE_S = 0.3
_STATUS_UNKNOWN = "ContainerStatusUnknown"
_POD_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a pod's status says of its node."""

    host_ips: tuple[str, ...]
    runtime_name: str = "containerd"


def pod_status(
    pod: Pod,
    observed: ObservedPod,
    memory: Memory,
    node: NodeFacts,
    now_s: float,
    *,
    previous: PodStatus | None = None,
    ended: bool = False,
) -> PodStatus:
    """The status that the pod should have.

    Args:
        pod: as the watch showed it last; conditions of other writers come from it.
        observed: what the runtime has of it.
        previous: what the kubelet made last, which the watch may not have shown yet; None after its
            start. Times of what has not changed are kept from it.
        ended: the pod has ended for good: nothing of it runs, and nothing will.

    Source: kubelet_pods.go generateAPIPodStatus; status_manager.go TerminatePod.
    """
    before = pod.status if previous is None else previous
    status = PodStatus()
    status.qosClass = qos_class(pod)
    scene = _Scene(pod, before, observed, memory, node, now_s)
    status.initContainerStatuses.extend(
        _container_status(scene, container, init=True) for container in pod.spec.initContainers
    )
    status.containerStatuses.extend(
        _container_status(scene, container, init=False) for container in pod.spec.containers
    )
    if ended:
        _end_what_is_left(status)
    status.phase = _phase(pod, before, status, ended=ended)
    status.reason, status.message = pod.status.reason, pod.status.message
    if status.phase == "Failed" and not status.reason:
        # What the kubelet said itself, and the watch has yet to show.
        status.reason, status.message = before.reason, before.message
    due_s = deadline_s(pod, before)
    if due_s is not None and now_s >= due_s and status.phase not in ("Succeeded", "Failed"):
        status.phase, status.reason, status.message = "Failed", "DeadlineExceeded", _DEADLINE_TEXT
    for address in node.host_ips:
        status.hostIPs.add(ip=address)
    status.hostIP = node.host_ips[0] if node.host_ips else ""
    addresses = node.host_ips if pod.spec.hostNetwork and observed.sandbox else _pod_ips(observed, before)
    for address in addresses:
        status.podIPs.add(ip=address)
    status.podIP = addresses[0] if addresses else ""
    if before.HasField("startTime"):
        status.startTime.CopyFrom(before.startTime)
    else:
        status.startTime.seconds = int(now_s)
    status.observedGeneration = pod.metadata.generation
    status.conditions.extend(_conditions(pod, before, status, observed, now_s))
    return status


def deadline_s(pod: Pod, status: PodStatus) -> float | None:
    """When the pod has been active for too long; None without `activeDeadlineSeconds`.

    Source: active_deadline.go.
    """
    if not pod.spec.HasField("activeDeadlineSeconds") or not status.HasField("startTime"):
        return None
    return float(status.startTime.seconds + pod.spec.activeDeadlineSeconds)


def changes_at_s(pod: Pod, observed: ObservedPod, now_s: float) -> float | None:
    """When the pod's status becomes another one though nothing happens; None for never."""
    times = [deadline_s(pod, pod.status)]
    times += [
        c.started_at_s + _SETTLE_S
        for c in observed.containers
        if c.state == RUNNING and not _settled(c, now_s)
    ]
    return min((time_s for time_s in times if time_s is not None and time_s > now_s), default=None)


def _settled(container: RuntimeContainer, now_s: float) -> bool:
    """Whether a running container has lived long enough to be ready without a probe's word.

    One that ends at once must not look ready in between: a rollout would count it. Upstream's kubelet
    looks once a second, so it hardly ever sees such a container running.
    """
    # A start in the future is another clock's: no reason to wait for it.
    return now_s < container.started_at_s or now_s >= container.started_at_s + _SETTLE_S


def known_message(status: PodStatus, container_id: str) -> str:
    """The termination message that a status already holds of a container; "" for none."""
    for entry in (*status.containerStatuses, *status.initContainerStatuses):
        for state in (entry.state, entry.lastState):
            if state.terminated.containerID.endswith(f"//{container_id}"):
                return str(state.terminated.message)
    return ""


@dataclass(frozen=True, slots=True)
class _Scene:
    pod: Pod
    before: PodStatus
    observed: ObservedPod
    memory: Memory
    node: NodeFacts
    now_s: float


def _pod_ips(observed: ObservedPod, before: PodStatus) -> tuple[str, ...]:
    sandbox = observed.sandbox
    if sandbox is not None and sandbox.ready:
        return sandbox.ips
    # A pod that has ended keeps its last address in view, as upstream's does.
    return tuple(entry.ip for entry in before.podIPs)


def _container_status(scene: _Scene, container: Container, *, init: bool) -> ContainerStatus:
    made = scene.observed.of(container.name)
    statuses = scene.before.initContainerStatuses if init else scene.before.containerStatuses
    old = next((entry for entry in statuses if entry.name == container.name), None)
    waiting = scene.memory.waiting.get(container.name)
    if not made:
        return _with_resources(_missing_status(scene, container, old, waiting), container)
    latest = made[0]
    status = ContainerStatus(name=container.name, image=latest.image or container.image, started=False)
    status.ready = False
    status.restartCount = latest.attempt
    status.imageID = latest.image_id
    status.containerID = f"{scene.node.runtime_name}://{latest.id}"
    previous = next((other for other in made[1:] if other.state == EXITED), None)
    if latest.state == RUNNING:
        status.state.running.startedAt.seconds = int(latest.started_at_s)
        status.started, status.ready = _health(scene, container, latest, old, init=init)
    elif latest.state == EXITED:
        restarts = should_restart(restart_policy_of(scene.pod, init=init), latest)
        if waiting is not None and restarts:
            _set_waiting(status, waiting)
            previous = latest
        else:
            _set_terminated(status.state, latest, scene.node)
            status.ready = init and latest.exit_code == 0
    elif latest.state == CREATED:
        _set_waiting(status, waiting or _not_yet(scene.pod))
    else:
        _set_waiting(status, waiting or Waiting(_STATUS_UNKNOWN))
    if previous is not None:
        _set_terminated(status.lastState, previous, scene.node)
    return _with_resources(status, container)


def _health(
    scene: _Scene, container: Container, latest: RuntimeContainer, old: ContainerStatus | None, *, init: bool
) -> tuple[bool, bool]:
    """Whether a running container has started, and whether it is ready.

    What no probe has decided yet stays as it was: a kubelet's restart takes no pod out of its Services.
    Source: prober_manager.go UpdatePodStatus.
    """
    if init:
        return True, False
    health = scene.memory.health.get(latest.id, Health())
    if old is not None and old.containerID == f"{scene.node.runtime_name}://{latest.id}":
        health = Health(
            started=old.started if health.started is None else health.started,
            live=health.live,
            ready=old.ready if health.ready is None else health.ready,
        )
    ready = is_ready(container, health) and (health.ready is True or _settled(latest, scene.now_s))
    return is_started(container, health), ready


def _missing_status(
    scene: _Scene, container: Container, old: ContainerStatus | None, waiting: Waiting | None
) -> ContainerStatus:
    """The status of a container of which the runtime knows nothing: not yet made, or lost.

    One that was seen running and is gone counts as ended, else its pod would be Pending again and
    a pod that may not restart would run twice.
    """
    status = ContainerStatus(name=container.name, image=container.image, started=False)
    status.ready = False
    status.restartCount = 0
    status.imageID = ""
    if old is not None and old.state.HasField("terminated"):
        status.CopyFrom(old)
        return status
    _set_waiting(status, waiting or _not_yet(scene.pod))
    if old is None:
        return status
    status.restartCount = old.restartCount
    if old.HasField("lastState"):
        status.lastState.CopyFrom(old.lastState)
    if waiting is None and old.state.HasField("running"):
        _set_lost(
            status.lastState,
            "The container could not be located when the pod was deleted.  The container used to be Running",
        )
        if not scene.pod.metadata.HasField("deletionTimestamp"):
            status.restartCount += 1
    return status


def _end_what_is_left(status: PodStatus) -> None:
    """Containers of a pod that has ended have ended, too, once its init containers were done."""
    if all(_init_done(entry) for entry in status.initContainerStatuses):
        for entry in status.containerStatuses:
            if not entry.state.HasField("terminated"):
                _set_lost(entry.state, "The container could not be located when the pod was terminated")
                entry.ready = entry.started = False


def _set_lost(state: core_v1.ContainerState, message: str) -> None:
    state.Clear()
    ended: Any = state.terminated
    ended.exitCode, ended.reason, ended.message = _KILLED, _STATUS_UNKNOWN, message


def _not_yet(pod: Pod) -> Waiting:
    return Waiting("PodInitializing" if pod.spec.initContainers else "ContainerCreating")


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
    # The status may begin as a copy of an earlier one.
    del status.volumeMounts[:]
    for mount in container.volumeMounts:
        entry = status.volumeMounts.add(name=mount.name, mountPath=mount.mountPath, readOnly=mount.readOnly)
        if mount.readOnly:
            entry.recursiveReadOnly = mount.recursiveReadOnly or "Disabled"
    return status


def _phase(pod: Pod, before: PodStatus, status: PodStatus, *, ended: bool) -> str:
    """A pod in its last phase stays there; one that has ended has one.

    Source: kubelet_pods.go getPhase.
    """
    for known in (before.phase, pod.status.phase):
        if known in ("Succeeded", "Failed"):
            return known
    policy = pod.spec.restartPolicy or "Always"
    init, main = status.initContainerStatuses, status.containerStatuses
    if policy == "Never" and any(_failed(entry) for entry in init):
        return "Failed"
    running = [entry for entry in main if entry.state.HasField("running")]
    # A container that waits to be started again has stopped, one that never ran has not.
    stopped = [entry for entry in main if _end_of(entry) is not None]
    succeeded = all(
        entry.state.HasField("terminated") and entry.state.terminated.exitCode == 0 for entry in stopped
    )
    if ended:
        return "Succeeded" if stopped and succeeded and len(stopped) == len(main) else "Failed"
    if any(_pending(entry) for entry in init) or len(running) + len(stopped) < len(main):
        return "Pending"
    if running or policy == "Always":
        return "Running"
    if succeeded:
        return "Succeeded"
    return "Failed" if policy == "Never" else "Running"


def _end_of(status: ContainerStatus) -> Any:
    """How a container ended that does not run now; None for one that runs or never has."""
    if status.state.HasField("terminated"):
        return status.state.terminated
    if status.state.HasField("waiting") and status.lastState.HasField("terminated"):
        return status.lastState.terminated
    return None


def _failed(status: ContainerStatus) -> bool:
    end = _end_of(status)
    return end is not None and end.exitCode != 0


def _pending(status: ContainerStatus) -> bool:
    """Whether an init container has not come to any end yet."""
    return _end_of(status) is None


def _init_done(status: ContainerStatus) -> bool:
    return status.state.HasField("terminated") and status.state.terminated.exitCode == 0


def _conditions(
    pod: Pod, before: PodStatus, status: PodStatus, observed: ObservedPod, now_s: float
) -> list[PodCondition]:
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
    old = {condition.type: condition for condition in before.conditions}
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
    made.extend(condition for condition in pod.status.conditions if condition.type not in wanted)
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
