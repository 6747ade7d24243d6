"""The pod's row in a table: READY, STATUS and RESTARTS are computed from its containers.

Counterpart: printPod of kubernetes pkg/printers/internalversion.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from podyard.api import meta
from podyard.api.types import Pod, Time

NONE = "<none>"
_TERMINAL_PHASES = ("Succeeded", "Failed")
_ROW_TEXTS = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}


@dataclass(slots=True)
class _Restarts:
    count: int = 0
    last: Time | None = None

    def add(self, status: Any) -> None:
        """Counts a container's restarts and the end of its last run."""
        self.count += status.restartCount
        if status.lastState.HasField("terminated"):
            finished = status.lastState.terminated.finishedAt
            if not meta.is_zero_time(finished) and (
                self.last is None or self.last.seconds < finished.seconds
            ):
                self.last = finished

    def shown(self, now_s: float) -> str:
        if self.count and self.last is not None:
            return f"{self.count} ({meta.age_text(self.last, now_s)} ago)"
        return str(self.count)


def cells(pod: Pod, now_s: float) -> list[Any]:
    """The cells of one pod."""
    ready, total, status, restarts = summary(pod)
    addresses = pod.status.podIPs
    return [
        pod.metadata.name,
        f"{ready}/{total}",
        status,
        restarts.shown(now_s),
        meta.age_text(pod.metadata.creationTimestamp, now_s),
        addresses[0].ip if addresses else pod.status.podIP or NONE,
        pod.spec.nodeName or NONE,
        pod.status.nominatedNodeName or NONE,
        _readiness_gates(pod),
    ]


def row_conditions(pod: Pod) -> list[dict[str, str]]:
    """Conditions of the row: clients may hide finished pods by them."""
    phase = pod.status.phase
    if phase not in _TERMINAL_PHASES:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": _ROW_TEXTS[phase]}]


def summary(pod: Pod) -> tuple[int, int, str, _Restarts]:
    """Ready containers, all containers, the status word, restarts."""
    restartable = {
        container.name for container in pod.spec.initContainers if container.restartPolicy == "Always"
    }
    reason = pod.status.reason or pod.status.phase
    scheduled = meta.condition(pod.status.conditions, "PodScheduled")
    if scheduled is not None and scheduled.reason == "SchedulingGated":
        reason = "SchedulingGated"

    restarts, sidecar_restarts = _Restarts(), _Restarts()
    ready, initializing = 0, ""
    for index, status in enumerate(pod.status.initContainerStatuses):
        restarts.add(status)
        if status.name in restartable:
            sidecar_restarts.add(status)
        if status.state.HasField("terminated") and status.state.terminated.exitCode == 0:
            continue
        if status.name in restartable and status.started:
            ready += status.ready
            continue
        initializing = _init_reason(status, index, len(pod.spec.initContainers))
        break

    if initializing:
        reason = initializing
    if not initializing or meta.is_condition_true(pod.status.conditions, "Initialized"):
        # Once initialized, only what still runs counts.
        restarts = sidecar_restarts
        reason, running = _container_reason(pod, reason, restarts)
        ready += running
    if pod.metadata.HasField("deletionTimestamp"):
        if pod.status.reason == "NodeLost":
            reason = "Unknown"
        elif pod.status.phase not in _TERMINAL_PHASES:
            reason = "Terminating"
    return ready, len(pod.spec.containers) + len(restartable), reason, restarts


def _init_reason(status: Any, index: int, total: int) -> str:
    """The word for the init container that holds the pod up."""
    if status.state.HasField("terminated"):
        return f"Init:{_terminated_reason(status.state.terminated)}"
    waiting = status.state.waiting.reason if status.state.HasField("waiting") else ""
    if waiting and waiting != "PodInitializing":
        return f"Init:{waiting}"
    return f"Init:{index}/{total}"


def _terminated_reason(terminated: Any) -> str:
    if terminated.reason:
        return str(terminated.reason)
    return f"Signal:{terminated.signal}" if terminated.signal else f"ExitCode:{terminated.exitCode}"


def _container_reason(pod: Pod, reason: str, restarts: _Restarts) -> tuple[str, int]:
    """The word after looking at the containers, the first container's last; and how many are ready."""
    running = 0
    for status in reversed(pod.status.containerStatuses):
        restarts.add(status)
        state = status.state
        if state.HasField("waiting") and state.waiting.reason:
            reason = state.waiting.reason
        elif state.HasField("terminated"):
            reason = _terminated_reason(state.terminated)
        elif status.ready and state.HasField("running"):
            running += 1
    if reason == "Completed" and running:
        # One container is done, others work on.
        reason = "Running" if meta.is_condition_true(pod.status.conditions, "Ready") else "NotReady"
    return reason, running


def _readiness_gates(pod: Pod) -> str:
    gates = pod.spec.readinessGates
    if not gates:
        return NONE
    met = sum(meta.is_condition_true(pod.status.conditions, gate.conditionType) for gate in gates)
    return f"{met}/{len(gates)}"
