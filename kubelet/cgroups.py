"""Resource figures: from requests and limits to what the kernel is told. Pure.

Sources: upstream kubelet cm/helpers_linux.go (shares, quota, limits of pods), qos/policy.go (OOM
scores), and the cgroup tree /kubepods[/burstable|/besteffort]/podUID.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubelet.podspec import BEST_EFFORT, BURSTABLE, GUARANTEED, qos_class
from kubelet.runtime.base import Resources
from podyard.api import quantity
from podyard.api.types import Container, Pod, Quantity

_MIN_SHARES = 2
_MAX_SHARES = 262_144
_SHARES_PER_CPU = 1024
_PERIOD_US = 100_000
_MIN_QUOTA_US = 1000
_SUBTREES = {GUARANTEED: "", BURSTABLE: "/burstable", BEST_EFFORT: "/besteffort"}


def pod_cgroup(pod: Pod) -> str:
    """Path of the pod's cgroup below each controller's root."""
    return f"/kubepods{_SUBTREES[qos_class(pod)]}/pod{pod.metadata.uid}"


def container_resources(pod: Pod, container: Container, memory_capacity_bytes: int) -> Resources:
    """Limits of one container."""
    needs = container.resources
    request_m, limit_m = _amount_m(needs.requests, "cpu"), _amount_m(needs.limits, "cpu")
    return Resources(
        cpu_shares=shares(request_m if request_m is not None else limit_m or 0),
        cpu_quota_us=quota_us(limit_m or 0),
        cpu_period_us=_PERIOD_US,
        memory_limit_bytes=_bytes(needs.limits, "memory") or 0,
        oom_score_adj=oom_score_adj(pod, container, memory_capacity_bytes),
    )


def pod_resources(pod: Pod) -> Resources:
    """Limits of the pod as a whole: sums, where every container has a limit."""
    containers = list(pod.spec.containers)
    requests_m = [_amount_m(c.resources.requests, "cpu") or 0 for c in containers]
    limits_m = [_amount_m(c.resources.limits, "cpu") for c in containers]
    limits_bytes = [_bytes(c.resources.limits, "memory") for c in containers]
    all_cpu = all(limit for limit in limits_m)
    all_memory = all(limit for limit in limits_bytes)
    return Resources(
        cpu_shares=shares(sum(requests_m)),
        cpu_quota_us=quota_us(sum(limit or 0 for limit in limits_m)) if all_cpu else 0,
        cpu_period_us=_PERIOD_US,
        memory_limit_bytes=sum(limit or 0 for limit in limits_bytes) if all_memory else 0,
    )


def shares(cpu_m: int) -> int:
    """Milli-cores as cgroup v1 shares."""
    return min(max(cpu_m * _SHARES_PER_CPU // 1000, _MIN_SHARES), _MAX_SHARES)


def quota_us(cpu_m: int) -> int:
    """Milli-cores as CFS quota for each period; 0 for no limit."""
    return max(cpu_m * _PERIOD_US // 1000, _MIN_QUOTA_US) if cpu_m else 0


def oom_score_adj(pod: Pod, container: Container, memory_capacity_bytes: int) -> int:
    """Who is killed first when memory runs out."""
    kind = qos_class(pod)
    if kind == GUARANTEED:
        return -997
    if kind == BEST_EFFORT:
        return 1000
    request_bytes = _bytes(container.resources.requests, "memory") or 0
    score = 1000 - 1000 * request_bytes // max(memory_capacity_bytes, 1)
    return int(min(max(score, 3), 999))


def _amount_m(resources: Mapping[str, Quantity], name: str) -> int | None:
    return quantity.of(resources[name]).milli if name in resources else None


def _bytes(resources: Mapping[str, Quantity], name: str) -> int | None:
    return quantity.of(resources[name]).value if name in resources else None
