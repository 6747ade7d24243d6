"""What a pod asks for: the effective requests and limits, and its quality-of-service class.

Used by defaults and rules on the server, by the scheduler and by the kubelet, so that all count alike.

Counterpart: component-helpers `resource`, kubernetes pkg/apis/core/v1/helper/qos.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podyard.api import quantity
from podyard.api.quantity import Amount
from podyard.api.types import Pod, PodSpec, Quantity

GUARANTEED = "Guaranteed"
BURSTABLE = "Burstable"
BEST_EFFORT = "BestEffort"

# Resources that may be set for a whole pod.
POD_LEVEL_RESOURCES = ("cpu", "memory")
_QOS_RESOURCES = ("cpu", "memory")

Amounts = dict[str, Amount]


def amounts(resources: Mapping[str, Quantity]) -> Amounts:
    """A resource list as amounts."""
    return {name: quantity.of(value) for name, value in resources.items()}


def requests(spec: PodSpec) -> Amounts:
    """What the scheduler must find: the larger of init and main phase, plus overhead.

    Source: component-helpers resource.PodRequests.
    """
    return _effective(spec, lambda resources: resources.requests)


def limits(spec: PodSpec) -> Amounts:
    """The most that the pod may use; a resource that some container leaves open is summed all the same."""
    return _effective(spec, lambda resources: resources.limits)


def container_requests(spec: PodSpec) -> Amounts:
    """As `requests`, from the containers alone: without the pod's own figures and its overhead."""
    return _containers(spec, lambda resources: resources.requests)


def _effective(spec: PodSpec, choose: Callable[[Any], Mapping[str, Quantity]]) -> Amounts:
    found = _containers(spec, choose)
    if spec.HasField("resources"):
        for name, amount in amounts(choose(spec.resources)).items():
            if is_pod_level(name):
                found[name] = amount
    for name, amount in amounts(spec.overhead).items():
        # A limit that nobody set stays open: overhead alone is no limit.
        if choose(spec.resources) is not spec.resources.limits or name in found:
            found[name] = _plus(found.get(name), amount)
    return found


def is_pod_level(name: str) -> bool:
    """Whether the resource can be set for a whole pod."""
    return name in POD_LEVEL_RESOURCES or name.startswith("hugepages-")


def _containers(spec: PodSpec, choose: Callable[[Any], Mapping[str, Quantity]]) -> Amounts:
    main: Amounts = {}
    for container in spec.containers:
        _add(main, amounts(choose(container.resources)))
    sidecars: Amounts = {}
    init: Amounts = {}
    for container in spec.initContainers:
        own = amounts(choose(container.resources))
        if container.restartPolicy == "Always":
            # A sidecar runs beside all that comes after it.
            _add(main, own)
            _add(sidecars, own)
            phase = dict(sidecars)
        else:
            phase = dict(sidecars)
            _add(phase, own)
        _raise(init, phase)
    _raise(main, init)
    return main


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = _plus(total.get(name), amount)


def _plus(left: Amount | None, right: Amount) -> Amount:
    return right if left is None else left + right


def _raise(total: Amounts, other: Amounts) -> None:
    for name, amount in other.items():
        if name not in total or total[name].nanos < amount.nanos:
            total[name] = amount


def qos_class(pod: Pod) -> str:
    """Guaranteed, Burstable or BestEffort.

    Source: kubernetes pkg/apis/core/v1/helper/qos ComputePodQOS.
    """
    spec = pod.spec
    if spec.HasField("resources"):
        pod_requests, pod_limits = _counted(spec.resources.requests), _counted(spec.resources.limits)
        if pod_requests or pod_limits:
            return _class(pod_requests, pod_limits, complete=_has_all(spec.resources.limits))
    total_requests: Amounts = {}
    total_limits: Amounts = {}
    complete = True
    for container in [*spec.containers, *spec.initContainers]:
        _add(total_requests, _counted(container.resources.requests))
        _add(total_limits, _counted(container.resources.limits))
        complete = complete and _has_all(container.resources.limits)
    return _class(total_requests, total_limits, complete=complete)


def _counted(resources: Mapping[str, Quantity]) -> Amounts:
    """Only cpu and memory above zero count."""
    return {
        name: amount
        for name, amount in amounts(resources).items()
        if name in _QOS_RESOURCES and amount.nanos > 0
    }


def _has_all(resources: Mapping[str, Quantity]) -> bool:
    return all(name in _counted(resources) for name in _QOS_RESOURCES)


def _class(total_requests: Amounts, total_limits: Amounts, *, complete: bool) -> str:
    if not total_requests and not total_limits:
        return BEST_EFFORT
    equal = len(total_requests) == len(total_limits) and all(
        name in total_limits and total_limits[name].nanos == amount.nanos
        for name, amount in total_requests.items()
    )
    return GUARANTEED if complete and equal else BURSTABLE
