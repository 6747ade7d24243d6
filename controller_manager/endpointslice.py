"""EndpointSlices: the addresses behind each Service, at most a hundred in a slice.

Slices have names made from their ports and number, so that a lost answer never leads to a second
one. A pod that ends stays listed as terminating until it is gone: those that still serve are the
last resort of a Service whose every pod ends.

Source: upstream's endpointslice controller.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from controller_manager.endpointpods import Backend, Port, backends, has_selector, services_of_pod
from controller_manager.podstate import owner_reference
from podyard.api import codec
from podyard.api.types import EndpointSlice, Key, Node, Pod, Service, copy_of
from podyard.control.actions import Action, Actions, Create, Delete, Update
from podyard.control.spec import ControllerSpec
from podyard.control.view import View

SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.k8s.io"
HEADLESS = "service.kubernetes.io/headless"
MAX_ENDPOINTS = 100
_ZONE = "topology.kubernetes.io/zone"
_NAME_BYTES = 253 - 12


def reconcile(view: View, key: Key) -> Actions:
    """Brings a Service's slices in line with its pods.

    Returns:
        Creates, Updates and Deletes of slices.
    """
    service = view.get(Service, key)
    if service is None or service.metadata.HasField("deletionTimestamp"):
        return []  # the garbage collector takes the slices along
    present = {
        entry.metadata.name: entry
        for entry in view.list(EndpointSlice, key.namespace)
        if entry.metadata.labels.get(SERVICE_NAME) == key.name
        and entry.metadata.labels.get(MANAGED_BY) == MANAGER
    }
    wanted = list(_slices(view, service)) if has_selector(service) else []
    actions: list[Action] = []
    for entry in wanted:
        known = present.pop(entry.metadata.name, None)
        if known is None:
            actions.append(Create(entry))
        elif not _same(known, entry):
            actions.append(Update(_merged(known, entry)))
    actions.extend(
        Delete(EndpointSlice, Key(key.namespace, name), entry.metadata.uid) for name, entry in present.items()
    )
    return actions


def _slices(view: View, service: Service) -> Iterator[EndpointSlice]:
    groups: dict[tuple[Port, ...], list[Backend]] = {}
    for backend in backends(view, service):
        groups.setdefault(backend.ports, []).append(backend)
    if not groups:
        # A Service whose pods are yet to come has one empty slice, as upstream's.
        groups[()] = []
    for ports, members in sorted(groups.items()):
        for number, start in enumerate(range(0, max(len(members), 1), MAX_ENDPOINTS)):
            yield _slice(view, service, ports, number, members[start : start + MAX_ENDPOINTS])


def _slice(
    view: View, service: Service, ports: tuple[Port, ...], number: int, members: list[Backend]
) -> EndpointSlice:
    digest = hashlib.sha256(repr((ports, number)).encode()).hexdigest()[:5]
    entry = EndpointSlice(addressType="IPv4")
    metadata = entry.metadata
    metadata.name = f"{service.metadata.name[:_NAME_BYTES]}-{digest}"
    metadata.namespace = service.metadata.namespace
    metadata.labels.update(service.metadata.labels)
    metadata.labels[SERVICE_NAME] = service.metadata.name
    metadata.labels[MANAGED_BY] = MANAGER
    if service.spec.clusterIP == "None":
        metadata.labels[HEADLESS] = ""
    metadata.ownerReferences.add(**owner_reference(service, "v1", "Service"))
    for port in ports:
        made = entry.ports.add(name=port.name, protocol=port.protocol, port=port.number)
        if port.app_protocol:
            made.appProtocol = port.app_protocol
    for backend in members:
        _add_endpoint(entry, view, service, backend)
    return entry


def _add_endpoint(entry: EndpointSlice, view: View, service: Service, backend: Backend) -> None:
    pod = backend.pod
    endpoint = entry.endpoints.add(addresses=[backend.address])
    endpoint.conditions.ready = backend.ready
    endpoint.conditions.serving = backend.serving
    endpoint.conditions.terminating = backend.terminating
    endpoint.targetRef.kind = "Pod"
    endpoint.targetRef.namespace = pod.metadata.namespace
    endpoint.targetRef.name = pod.metadata.name
    endpoint.targetRef.uid = pod.metadata.uid
    endpoint.nodeName = pod.spec.nodeName
    if pod.spec.hostname and pod.spec.subdomain == service.metadata.name:
        endpoint.hostname = pod.spec.hostname
    node = view.get(Node, Key("", pod.spec.nodeName))
    zone = node.metadata.labels.get(_ZONE, "") if node is not None else ""
    if zone:
        endpoint.zone = zone


def _same(known: EndpointSlice, wanted: EndpointSlice) -> bool:
    return codec.same(_merged(known, wanted), known)


def _merged(known: EndpointSlice, wanted: EndpointSlice) -> EndpointSlice:
    made = copy_of(known)
    del made.endpoints[:]
    made.endpoints.extend(wanted.endpoints)
    del made.ports[:]
    made.ports.extend(wanted.ports)
    made.metadata.labels.clear()
    made.metadata.labels.update(wanted.metadata.labels)
    return made


ENDPOINT_SLICE = ControllerSpec(
    name="endpointslice",
    for_=Service,
    owns=(EndpointSlice,),
    maps={Pod: services_of_pod},
    reads=(Node,),
    reconcile=reconcile,
    reporter="endpoint-slice-controller",
    workers=4,
)
