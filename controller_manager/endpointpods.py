"""Which pods stand behind a Service, and on which ports. Pure; no controller itself.

Source: upstream's endpointslice reconciler and endpoints controller utilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from controller_manager.podstate import is_ready
from podyard.api import selectors
from podyard.api.types import Key, Pod, Service
from podyard.control.view import View

_TOLERATE_UNREADY = "service.alpha.kubernetes.io/tolerate-unready-endpoints"


@dataclass(frozen=True, slots=True, order=True)
class Port:
    """A port of a Service as its pods have it."""

    name: str
    protocol: str
    number: int
    app_protocol: str = ""


@dataclass(frozen=True, slots=True)
class Backend:
    """A pod behind a Service.

    Attributes:
        ready: takes new traffic.
        serving: would, were it not for its end.
    """

    pod: Pod
    ports: tuple[Port, ...]
    ready: bool
    serving: bool
    terminating: bool

    @property
    def address(self) -> str:
        return self.pod.status.podIP


def has_selector(service: Service) -> bool:
    """Whether the endpoints are ours to find; without a selector someone else keeps them."""
    return bool(service.spec.selector) and service.spec.type != "ExternalName"


def backends(view: View, service: Service) -> list[Backend]:
    """The pods of a Service that have an address, ordered by name."""
    selector = selectors.from_labels(service.spec.selector)
    tolerant = service.spec.publishNotReadyAddresses or (
        service.metadata.annotations.get(_TOLERATE_UNREADY) == "true"
    )
    found = []
    for pod in view.list(Pod, service.metadata.namespace):
        if not pod.status.podIP or pod.status.phase in ("Succeeded", "Failed"):
            continue
        if selector.matches(pod.metadata.labels):
            found.append(_backend(service, pod, tolerant=tolerant))
    return found


def _backend(service: Service, pod: Pod, *, tolerant: bool) -> Backend:
    serving = is_ready(pod)
    terminating = pod.metadata.HasField("deletionTimestamp")
    return Backend(
        pod=pod,
        ports=_ports(service, pod),
        ready=tolerant or (serving and not terminating),
        serving=tolerant or serving,
        terminating=terminating,
    )


def _ports(service: Service, pod: Pod) -> tuple[Port, ...]:
    found = []
    for port in service.spec.ports:
        number = _target(port.targetPort, port.port, port.protocol or "TCP", pod)
        if number:
            found.append(Port(port.name, port.protocol or "TCP", number, port.appProtocol))
    return tuple(sorted(found))


def _target(target: Any, default: int, protocol: str, pod: Pod) -> int:
    """The number of a target port in a pod; 0 where a named one does not exist there."""
    if target.type == 0:
        return int(target.intVal or default)
    for container in pod.spec.containers:
        for port in container.ports:
            if port.name == target.strVal and (port.protocol or "TCP") == protocol:
                return int(port.containerPort)
    return 0


def services_of_pod(old: Any, new: Any, view: View) -> list[Key]:
    """Services that a change of a pod concerns: by the labels that it has or had."""
    if old is not None and new is not None and _matters(old) == _matters(new):
        return []
    labels = [dict(pod.metadata.labels) for pod in (old, new) if pod is not None]
    namespace = (new if new is not None else old).metadata.namespace
    return [
        Key(namespace, service.metadata.name)
        for service in view.list(Service, namespace)
        if has_selector(service)
        and any(selectors.from_labels(service.spec.selector).matches(one) for one in labels)
    ]


def _matters(pod: Pod) -> tuple[Any, ...]:
    return (
        dict(pod.metadata.labels),
        pod.status.podIP,
        pod.status.phase in ("Succeeded", "Failed"),
        is_ready(pod),
        pod.metadata.HasField("deletionTimestamp"),
        pod.spec.nodeName,
    )
