"""Endpoints: the older form of a Service's addresses, one object, ready and not ready apart.

Source: upstream's endpoints controller.
"""

from __future__ import annotations

from typing import Any

from controller_manager.endpointpods import Backend, Port, backends, has_selector, services_of_pod
from podyard.api import codec, times
from podyard.api.types import Endpoints, Key, Pod, Service, copy_of, core_v1
from podyard.control.actions import Actions, Create, Delete, Update
from podyard.control.spec import ControllerSpec
from podyard.control.view import View

HEADLESS = "service.kubernetes.io/headless"
TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time"
MANAGED_BY = "endpoints.kubernetes.io/managed-by"
MANAGER = "endpoint-controller"


def reconcile(view: View, key: Key) -> Actions:
    """Brings a Service's Endpoints in line with its pods.

    Returns:
        One Create, Update or Delete, or nothing.
    """
    service = view.get(Service, key)
    present = view.get(Endpoints, key)
    if service is None:
        # Only what this controller made; a user's own Endpoints stay.
        if present is not None and present.metadata.labels.get(MANAGED_BY) == MANAGER:
            return [Delete(Endpoints, key, present.metadata.uid)]
        return []
    if not has_selector(service):
        return []
    wanted = (
        Endpoints(metadata={"name": key.name, "namespace": key.namespace})
        if present is None
        else copy_of(present)
    )
    wanted.metadata.labels.clear()
    wanted.metadata.labels.update(service.metadata.labels)
    wanted.metadata.labels[MANAGED_BY] = MANAGER
    if service.spec.clusterIP == "None":
        wanted.metadata.labels[HEADLESS] = ""
    del wanted.subsets[:]
    wanted.subsets.extend(_subsets(backends(view, service), service))
    if present is not None and codec.same(wanted, present):
        return []
    wanted.metadata.annotations[TRIGGER_TIME] = times.text(int(view.now_s))
    return [Create(wanted) if present is None else Update(wanted)]


def _subsets(members: list[Backend], service: Service) -> list[core_v1.EndpointSubset]:
    """Addresses with the same ports together."""
    groups: dict[tuple[Port, ...], list[Backend]] = {}
    for backend in members:
        # Pods that end are left out altogether, unless the Service wants even those.
        if not backend.terminating or service.spec.publishNotReadyAddresses:
            groups.setdefault(backend.ports, []).append(backend)
    made = []
    for ports, group in sorted(groups.items()):
        subset: Any = core_v1.EndpointSubset()
        for backend in sorted(group, key=lambda item: item.address):
            addresses = subset.addresses if backend.ready else subset.notReadyAddresses
            _add_address(addresses, backend, service)
        for port in ports:
            subset.ports.add(name=port.name, port=port.number, protocol=port.protocol)
        made.append(subset)
    return made


def _add_address(addresses: Any, backend: Backend, service: Service) -> None:
    pod = backend.pod
    entry = addresses.add(ip=backend.address, nodeName=pod.spec.nodeName)
    if pod.spec.hostname and pod.spec.subdomain == service.metadata.name:
        entry.hostname = pod.spec.hostname
    entry.targetRef.kind = "Pod"
    entry.targetRef.namespace = pod.metadata.namespace
    entry.targetRef.name = pod.metadata.name
    entry.targetRef.uid = pod.metadata.uid


def _service_of(old: Any, new: Any, view: View) -> list[Key]:
    obj = new if new is not None else old
    return [Key(obj.metadata.namespace, obj.metadata.name)]


ENDPOINTS = ControllerSpec(
    name="endpoints",
    for_=Service,
    maps={Pod: services_of_pod, Endpoints: _service_of},
    reconcile=reconcile,
    reporter="endpoint-controller",
    workers=4,
)
