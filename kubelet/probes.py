"""What a probe's outcomes mean. Pure: thresholds, initial results, texts.

A startup probe holds the others back until it has succeeded once; a failing liveness or startup
probe ends the container, a failing readiness probe takes it out of its Services.

Source: upstream's prober worker and results manager.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from podyard.api.types import Container, core_v1

STARTUP = "startup"
LIVENESS = "liveness"
READINESS = "readiness"
KINDS = (STARTUP, LIVENESS, READINESS)
_MAX_OUTPUT = 1024


@dataclass(frozen=True, slots=True)
class Outcome:
    """One try.

    Attributes:
        ok: whether it succeeded.
        text: what it said, for the event.
    """

    ok: bool
    text: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """What is known of a running container.

    Attributes:
        started, live, ready: None while no try has decided.
    """

    started: bool | None = None
    live: bool | None = None
    ready: bool | None = None


@dataclass(frozen=True, slots=True)
class Streak:
    """Outcomes of one probe in a row: how many of the last kind, and the result so far."""

    ok: bool = True
    count: int = 0
    result: bool | None = None


def probe_of(container: Container, kind: str) -> core_v1.Probe | None:
    """The probe of a container, None when it has none of this kind."""
    field = f"{kind}Probe"
    return cast("core_v1.Probe", getattr(container, field)) if container.HasField(field) else None


def after(streak: Streak, probe: core_v1.Probe, *, ok: bool) -> Streak:
    """The streak after one more try; the result changes only past its threshold."""
    count = streak.count + 1 if streak.ok == ok and streak.count else 1
    threshold = max(probe.successThreshold, 1) if ok else max(probe.failureThreshold, 1)
    result = ok if count >= threshold else streak.result
    return Streak(ok, count, result)


def with_result(health: Health, kind: str, result: bool | None) -> Health:
    """The health with one probe's result."""
    field = {STARTUP: "started", LIVENESS: "live", READINESS: "ready"}[kind]
    return replace(health, **{field: result})


def failed_kind(container: Container, health: Health) -> str | None:
    """The kind of probe whose failure ends a running container; None while none does."""
    if container.HasField("startupProbe") and health.started is False:
        return STARTUP
    if container.HasField("livenessProbe") and health.live is False:
        return LIVENESS
    return None


def is_started(container: Container, health: Health) -> bool:
    """Whether a running container has started, as its status says."""
    return not container.HasField("startupProbe") or health.started is True


def is_ready(container: Container, health: Health) -> bool:
    """Whether a running container takes traffic: not before its first success."""
    if not is_started(container, health):
        return False
    return not container.HasField("readinessProbe") or health.ready is True


def doom(container: Container, kind: str, *, restarts: bool) -> str:
    """The text of the Killing event of a container that a probe has failed."""
    return f"Container {container.name} failed {kind} probe" + (", will be restarted" if restarts else "")


def doom_grace_s(container: Container, kind: str, pod_grace_s: float) -> float:
    """The grace of a container that a probe has failed: the probe's own, else the pod's."""
    probe = probe_of(container, kind)
    if probe is not None and probe.HasField("terminationGracePeriodSeconds"):
        return float(probe.terminationGracePeriodSeconds)
    return pod_grace_s


def unhealthy_text(kind: str, outcome: Outcome) -> str:
    """The Unhealthy event's text."""
    return f"{kind.capitalize()} probe failed: {outcome.text[:_MAX_OUTPUT]}"


def http_outcome(status: int, body: str) -> Outcome:
    """2xx and 3xx are well."""
    if 200 <= status < 400:
        return Outcome(True, body)
    return Outcome(False, f"HTTP probe failed with statuscode: {status}")


def exec_outcome(code: int, output: str) -> Outcome:
    """0 is well; else the output says why."""
    return Outcome(code == 0, output)
