"""What to do for a pod now: (pod, what the runtime has, memory, time) -> actions. Pure.

Called by the pod's worker whenever the pod, the runtime or a timer says so; each call starts from
what is observed, so a kubelet that was killed goes on where it was. Upstream counterpart:
kuberuntime's computePodActions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kubelet.podspec import container_hash, spec_grace_s
from kubelet.probes import Health, doom, doom_grace_s, failed_kind
from kubelet.runtime.base import CREATED, EXITED, RUNNING, UNKNOWN, ObservedPod, RuntimeContainer, Sandbox
from podyard.api import times
from podyard.api.types import Container, Pod

# Upstream: crash loop back-off of a container, and after how long a good run forgives it.
RESTART_BASE_S = 10.0
RESTART_CAP_S = 300.0
RESTART_RESET_S = 600.0
_STOPPING = "Stopping container {name}"


@dataclass(frozen=True, slots=True)
class RestartBackoff:
    """How long a container's next restart waits, counted from its end."""

    delay_s: float
    updated_at_s: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container does not run: what the user reads in its status."""

    reason: str
    message: str = ""


@dataclass(slots=True)
class Memory:
    """What a pod's worker keeps between plans. Lost with the process; nothing depends on it for good."""

    restarts: dict[str, RestartBackoff] = field(default_factory=dict)
    waiting: dict[str, Waiting] = field(default_factory=dict)
    killing: set[str] = field(default_factory=set)  # container ids whose end has been announced
    health: dict[str, Health] = field(default_factory=dict)  # container id -> what its probes found


@dataclass(frozen=True, slots=True)
class StartSandbox:
    attempt: int


@dataclass(frozen=True, slots=True)
class StopSandbox:
    sandbox_id: str


@dataclass(frozen=True, slots=True)
class RemoveSandbox:
    sandbox_id: str


@dataclass(frozen=True, slots=True)
class StartContainer:
    """Pull, create and start. `backoff` is remembered when the start is a restart."""

    name: str
    attempt: int
    sandbox_id: str
    backoff: RestartBackoff | None = None


@dataclass(frozen=True, slots=True)
class StopContainer:
    """`message` is the Killing event's; None stays silent."""

    container_id: str
    name: str
    grace_s: float
    message: str | None


@dataclass(frozen=True, slots=True)
class RemoveContainer:
    container_id: str


@dataclass(frozen=True, slots=True)
class Hold:
    """A container waits: `waiting` goes into its status, `event` (if any) is recorded once."""

    name: str
    waiting: Waiting
    event: str | None = None


@dataclass(frozen=True, slots=True)
class Announce:
    """Record an event about the pod."""

    type: str
    reason: str
    message: str


Action = (
    StartSandbox
    | StopSandbox
    | RemoveSandbox
    | StartContainer
    | StopContainer
    | RemoveContainer
    | Hold
    | Announce
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do.

    Attributes:
        actions: in order; the stops at its head may run side by side.
        wake_at_s: plan again then, even if nothing happens.
        finished: nothing of the pod runs any more and nothing ever will.
    """

    actions: tuple[Action, ...] = ()
    wake_at_s: float | None = None
    finished: bool = False


def plan(pod: Pod, observed: ObservedPod, memory: Memory, now_s: float) -> Plan:
    """What a live pod needs now."""
    if is_terminal(pod, observed):
        # Someone else (an eviction) may have said so while it runs.
        return _wind_down(observed, memory, grace_s=spec_grace_s(pod), message=_STOPPING)
    sandbox = observed.sandbox
    if sandbox is None:
        return Plan((StartSandbox(0),))
    if not _usable(pod, sandbox):
        return _replace_sandbox(pod, observed, memory, sandbox)
    actions: list[Action] = list(_superfluous(observed))
    wakes: list[float] = []
    for container in _due_containers(pod, observed, sandbox):
        step, wake_at_s = _container_step(pod, container, observed, sandbox, memory, now_s)
        actions.extend(step)
        if wake_at_s is not None:
            wakes.append(wake_at_s)
    return Plan(tuple(actions), min(wakes, default=None))


def plan_termination(observed: ObservedPod, memory: Memory, *, grace_s: float) -> Plan:
    """What a pod needs that must end: TERM, grace, KILL, then its sandbox goes."""
    return _wind_down(observed, memory, grace_s=grace_s, message=_STOPPING)


def plan_removal(observed: ObservedPod) -> Plan:
    """What is left to remove of a pod that has ended and whose object is gone."""
    actions: list[Action] = [StopSandbox(sandbox.id) for sandbox in observed.sandboxes if sandbox.ready]
    actions.extend(RemoveContainer(container.id) for container in observed.containers)
    actions.extend(RemoveSandbox(sandbox.id) for sandbox in observed.sandboxes)
    return Plan(tuple(actions), finished=not actions)


def is_terminal(pod: Pod, observed: ObservedPod) -> bool:
    """Whether the pod has run its course: no container will be started again."""
    if pod.status.phase in ("Succeeded", "Failed"):
        return True
    policy = pod.spec.restartPolicy or "Always"
    if policy == "Always":
        return False
    if _init_failed(pod, observed):
        return True
    for container in pod.spec.containers:
        latest = next(iter(observed.of(container.name)), None)
        if latest is None or latest.state != EXITED or should_restart(policy, latest):
            return False
    return True


def should_restart(policy: str, container: RuntimeContainer) -> bool:
    """Whether a container that has ended runs again."""
    return policy == "Always" or (policy == "OnFailure" and container.exit_code != 0)


def restart_policy_of(pod: Pod, *, init: bool) -> str:
    """The policy for one container: an init container that has succeeded never runs again."""
    policy = pod.spec.restartPolicy or "Always"
    return "OnFailure" if init and policy == "Always" else policy


def _init_failed(pod: Pod, observed: ObservedPod) -> bool:
    if pod.spec.restartPolicy != "Never":
        return False
    for container in pod.spec.initContainers:
        latest = next(iter(observed.of(container.name)), None)
        if latest is not None and latest.state == EXITED and latest.exit_code != 0:
            return True
    return False


def _usable(pod: Pod, sandbox: Sandbox) -> bool:
    return sandbox.ready and (bool(sandbox.ips) or pod.spec.hostNetwork)


def _replace_sandbox(pod: Pod, observed: ObservedPod, memory: Memory, sandbox: Sandbox) -> Plan:
    """The sandbox has died: what runs in it goes, a new one comes, unless the pod may not run twice."""
    stops = _stops(observed, memory, grace_s=0, message=None)
    if stops:
        return Plan(tuple(stops))
    if sandbox.ready:
        return Plan((StopSandbox(sandbox.id),))
    policy = pod.spec.restartPolicy or "Always"
    started = [c for c in observed.containers if c.state == EXITED]
    if policy == "Never" and started:
        return _wind_down(observed, memory, grace_s=0, message=None)
    return Plan(
        (
            Announce("Normal", "SandboxChanged", "Pod sandbox changed, it will be killed and re-created."),
            # Again, though it has stopped: this frees its address, or a dead node's entry for it.
            StopSandbox(sandbox.id),
            StartSandbox(sandbox.attempt + 1),
        )
    )


def _due_containers(pod: Pod, observed: ObservedPod, sandbox: Sandbox) -> list[Container]:
    """Containers to look at now: the first init container that has not succeeded, else all others."""
    here = {container.name for container in observed.containers if container.sandbox_id == sandbox.id}
    if any(container.name in here for container in pod.spec.containers):
        return list(pod.spec.containers)
    for container in pod.spec.initContainers:
        latest = next((c for c in observed.of(container.name) if c.sandbox_id == sandbox.id), None)
        if latest is None or latest.state != EXITED or latest.exit_code != 0:
            return [container]
    return list(pod.spec.containers)


def _container_step(
    pod: Pod,
    container: Container,
    observed: ObservedPod,
    sandbox: Sandbox,
    memory: Memory,
    now_s: float,
) -> tuple[list[Action], float | None]:
    made = observed.of(container.name)
    latest = made[0] if made else None
    if latest is None:
        return [StartContainer(container.name, _first_attempt(pod, container.name), sandbox.id)], None
    if latest.state == CREATED:
        # A kubelet died between create and start. It never ran, so its number is free again.
        return [RemoveContainer(latest.id), StartContainer(container.name, latest.attempt, sandbox.id)], None
    if latest.state == RUNNING and latest.sandbox_id == sandbox.id:
        if latest.hash and latest.hash != container_hash(container):
            grace_s = float(pod.spec.terminationGracePeriodSeconds)
            text = f"Container {container.name} definition changed, will be restarted"
            return [StopContainer(latest.id, container.name, grace_s, text)], None
        return _doomed(pod, container, latest, memory), None
    if latest.state in (RUNNING, UNKNOWN):
        return [StopContainer(latest.id, container.name, 0, None)], None
    init = any(container.name == other.name for other in pod.spec.initContainers)
    policy = restart_policy_of(pod, init=init)
    if init and latest.sandbox_id != sandbox.id:
        policy = "Always"  # a new sandbox runs the init containers anew
    if latest.sandbox_id == sandbox.id and not should_restart(policy, latest):
        return [], None
    return _restart(pod, container, latest, sandbox, memory, now_s)


def _doomed(pod: Pod, container: Container, latest: RuntimeContainer, memory: Memory) -> list[Action]:
    """Ends a container that a probe has failed; what follows is its restart policy's business."""
    kind = failed_kind(container, memory.health.get(latest.id, Health()))
    if kind is None:
        return []
    restarts = (pod.spec.restartPolicy or "Always") != "Never"
    grace_s = doom_grace_s(container, kind, float(pod.spec.terminationGracePeriodSeconds))
    return [StopContainer(latest.id, container.name, grace_s, doom(container, kind, restarts=restarts))]


def _first_attempt(pod: Pod, name: str) -> int:
    """The number of a container of which the runtime knows nothing: restarts are never forgotten.

    Source: kuberuntime_container.go startContainer (it counts the log files).
    """
    for status in (*pod.status.containerStatuses, *pod.status.initContainerStatuses):
        if status.name == name:
            return status.restartCount + (1 if status.state.HasField("terminated") else 0)
    return 0


def _restart(
    pod: Pod, container: Container, latest: RuntimeContainer, sandbox: Sandbox, memory: Memory, now_s: float
) -> tuple[list[Action], float | None]:
    known = memory.restarts.get(container.name)
    # Counted to the container's end, not to now: its own back-off is no good run.
    if known is not None and latest.finished_at_s - known.updated_at_s > RESTART_RESET_S:
        known = None
    if known is not None:
        due_s = latest.finished_at_s + known.delay_s
        if now_s < due_s:
            where = f"{pod.metadata.name}_{pod.metadata.namespace}({pod.metadata.uid})"
            after = times.duration_text(int(known.delay_s) * 10**9)
            text = f"back-off {after} restarting failed container={container.name} pod={where}"
            event = f"Back-off restarting failed container {container.name} in pod {where}"
            return [Hold(container.name, Waiting("CrashLoopBackOff", text), event)], due_s
    delay_s = RESTART_BASE_S if known is None else min(known.delay_s * 2, RESTART_CAP_S)
    backoff = RestartBackoff(delay_s, now_s)
    return [StartContainer(container.name, latest.attempt + 1, sandbox.id, backoff)], None


def _superfluous(observed: ObservedPod) -> list[Action]:
    """Dead containers but the last of each name, and old sandboxes that hold none of these."""
    actions: list[Action] = []
    kept_sandboxes = {observed.sandboxes[0].id} if observed.sandboxes else set()
    for name in dict.fromkeys(container.name for container in observed.containers):
        made = observed.of(name)
        dead = [container for container in made if container.state == EXITED]
        spare = dead[1:] if made[0].state != EXITED else dead[2:]
        actions.extend(RemoveContainer(container.id) for container in spare)
        kept_sandboxes.update(container.sandbox_id for container in made if container not in spare)
    actions.extend(
        RemoveSandbox(sandbox.id) for sandbox in observed.sandboxes if sandbox.id not in kept_sandboxes
    )
    return actions


def _stops(observed: ObservedPod, memory: Memory, *, grace_s: float, message: str | None) -> list[Action]:
    actions: list[Action] = []
    for container in observed.containers:
        if container.state in (RUNNING, UNKNOWN):
            text = (
                message.format(name=container.name)
                if message and container.id not in memory.killing
                else None
            )
            actions.append(StopContainer(container.id, container.name, grace_s, text))
    return actions


def _wind_down(observed: ObservedPod, memory: Memory, *, grace_s: float, message: str | None) -> Plan:
    stops = _stops(observed, memory, grace_s=grace_s, message=message)
    if stops:
        return Plan(tuple(stops))
    created = [
        RemoveContainer(container.id) for container in observed.containers if container.state == CREATED
    ]
    sandboxes = [StopSandbox(sandbox.id) for sandbox in observed.sandboxes if sandbox.ready]
    if created or sandboxes:
        return Plan((*created, *sandboxes))
    return Plan(finished=True)
