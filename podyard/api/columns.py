"""Table output: what `kubectl get` shows, one row of cells per object.

Definitions come from `tables/printer_columns.tsv`, cells from the function of the kind; a kind
without one gets the default table (name and creation time). Pure: ages count from the `now_s` given.

Counterpart: kubernetes pkg/printers/internalversion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, cast

from podyard.api import event_conversion, facts, kind_columns, meta, pod_columns, scale, times
from podyard.api.kind_columns import age, containers, more
from podyard.api.types import (
    ConfigMap,
    Endpoints,
    EndpointSlice,
    Event,
    EventsV1Event,
    Lease,
    Message,
    Namespace,
    Node,
    Pod,
    PriorityClass,
    Secret,
    Service,
    ServiceAccount,
    apps_v1,
)

NONE = "<none>"
UNKNOWN = "<unknown>"
UNSET = "<unset>"

Cells = Callable[[Any, float], list[Any]]


def table(row: Any, objects: Sequence[Message], now_s: float) -> dict[str, Any]:
    """Column definitions and rows (cells, and conditions of finished pods) of a meta/v1 Table.

    Args:
        row: the resource row, or what says the same of another kind; its message class chooses the columns.
        objects: messages of that class.
        now_s: seconds since the epoch that ages count to.
    """
    cells = CELLS.get(row.message)
    if cells is None:
        return {"columnDefinitions": _definitions(""), "rows": [{"cells": _default(o)} for o in objects]}
    rows: list[dict[str, Any]] = []
    for obj in objects:
        made: dict[str, Any] = {"cells": cells(obj, now_s)}
        if row.message is Pod:
            conditions = pod_columns.row_conditions(cast("Pod", obj))
            if conditions:
                made["conditions"] = conditions
        rows.append(made)
    return {"columnDefinitions": _definitions(row.kind), "rows": rows}


def _definitions(kind: str) -> list[dict[str, Any]]:
    return [dict(definition) for definition in _tables()[kind]]


@cache
def _tables() -> dict[str, list[dict[str, Any]]]:
    """Definitions by kind; the default table under the empty kind."""
    default = [("Name", "string", "name"), ("Created At", "date", "")]
    found: dict[str, list[dict[str, Any]]] = {
        "": [
            {"name": name, "type": kind, "format": form, "description": "", "priority": 0}
            for name, kind, form in default
        ]
    }
    for column in facts.rows("printer_columns"):
        if column["kind"].startswith("(") or column["column"].startswith("("):
            continue
        found.setdefault(column["kind"], []).append(
            {
                "name": column["column"],
                "type": column["type"],
                "format": column["format"],
                "description": "",
                "priority": int(column["priority"] or 0),
            }
        )
    return found


def _default(obj: Any) -> list[Any]:
    created = obj.metadata.creationTimestamp
    return [obj.metadata.name, None if meta.is_zero_time(created) else times.text(created.seconds)]


def _config_map(obj: ConfigMap, now_s: float) -> list[Any]:
    return [obj.metadata.name, len(obj.data) + len(obj.binaryData), age(obj, now_s)]


def _secret(obj: Secret, now_s: float) -> list[Any]:
    return [obj.metadata.name, obj.type, len(obj.data), age(obj, now_s)]


def _namespace(obj: Namespace, now_s: float) -> list[Any]:
    return [obj.metadata.name, obj.status.phase, age(obj, now_s)]


def _service_account(obj: ServiceAccount, now_s: float) -> list[Any]:
    return [obj.metadata.name, age(obj, now_s)]


def _lease(obj: Lease, now_s: float) -> list[Any]:
    return [obj.metadata.name, obj.spec.holderIdentity, age(obj, now_s)]


def _priority_class(obj: PriorityClass, now_s: float) -> list[Any]:
    return [obj.metadata.name, obj.value, obj.globalDefault, age(obj, now_s), obj.preemptionPolicy]


def _node(obj: Node, now_s: float) -> list[Any]:
    ready = meta.condition(obj.status.conditions, "Ready")
    status = "Unknown" if ready is None else "Ready" if ready.status == "True" else "NotReady"
    if obj.spec.unschedulable:
        status += ",SchedulingDisabled"
    info = obj.status.nodeInfo
    kernel = info.kernelVersion or UNKNOWN
    if info.architecture:
        kernel += f" ({info.architecture})"
    return [
        obj.metadata.name,
        status,
        ",".join(node_roles(obj)) or NONE,
        age(obj, now_s),
        info.kubeletVersion,
        _address(obj, "InternalIP"),
        _address(obj, "ExternalIP"),
        info.osImage or UNKNOWN,
        kernel,
        info.containerRuntimeVersion or UNKNOWN,
    ]


def node_roles(node: Node) -> list[str]:
    """Roles that the node's labels name."""
    roles = set()
    for key, value in node.metadata.labels.items():
        if key.startswith("node-role.kubernetes.io/") and len(key) > len("node-role.kubernetes.io/"):
            roles.add(key.removeprefix("node-role.kubernetes.io/"))
        elif key == "kubernetes.io/role" and value:
            roles.add(value)
    return sorted(roles)


def _address(node: Node, kind: str) -> str:
    return next((address.address for address in node.status.addresses if address.type == kind), NONE)


def _service(obj: Service, now_s: float) -> list[Any]:
    spec = obj.spec
    cluster_ip = spec.clusterIPs[0] if spec.clusterIPs else spec.clusterIP
    selector = ",".join(f"{key}={spec.selector[key]}" for key in sorted(spec.selector))
    return [
        obj.metadata.name,
        spec.type,
        cluster_ip or NONE,
        _external_ip(obj),
        ",".join(_service_port(port) for port in spec.ports) or NONE,
        age(obj, now_s),
        selector or NONE,
    ]


def _service_port(port: Any) -> str:
    number = f"{port.port}:{port.nodePort}" if port.nodePort > 0 else str(port.port)
    return f"{number}/{port.protocol}"


def _external_ip(service: Service) -> str:
    spec = service.spec
    external = ",".join(spec.externalIPs)
    if spec.type in ("ClusterIP", "NodePort"):
        return external or NONE
    if spec.type == "ExternalName":
        return spec.externalName
    if spec.type != "LoadBalancer":
        return UNKNOWN
    balancers = sorted(
        {item.ip or item.hostname for item in service.status.loadBalancer.ingress if item.ip or item.hostname}
    )
    return ",".join([*balancers, *spec.externalIPs]) or "<pending>"


def _endpoints(obj: Endpoints, now_s: float) -> list[Any]:
    listed: list[str] = []
    for subset in obj.subsets:
        if not subset.ports:
            listed += [address.ip for address in subset.addresses]
        for port in subset.ports:
            listed += [_host_port(address.ip, port.port) for address in subset.addresses]
    return [obj.metadata.name, more(listed) if obj.subsets else NONE, age(obj, now_s)]


def _host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _endpoint_slice(obj: EndpointSlice, now_s: float) -> list[Any]:
    ports = [str(port.port) if port.HasField("port") else port.name or "*" for port in obj.ports]
    addresses = [address for endpoint in obj.endpoints for address in endpoint.addresses]
    return [
        obj.metadata.name,
        obj.addressType,
        more(ports) or UNSET,
        more(addresses) or UNSET,
        age(obj, now_s),
    ]


def _event(obj: Event, now_s: float) -> list[Any]:
    first = meta.age_text(obj.firstTimestamp, now_s)
    if meta.is_zero_time(obj.firstTimestamp):
        first = meta.age_text(obj.eventTime, now_s)
    last = first if meta.is_zero_time(obj.lastTimestamp) else meta.age_text(obj.lastTimestamp, now_s)
    count = obj.count or 1
    if obj.HasField("series"):
        last = meta.age_text(obj.series.lastObservedTime, now_s)
        count = obj.series.count
    target = obj.involvedObject.kind.lower()
    if obj.involvedObject.name:
        target += f"/{obj.involvedObject.name}"
    source = obj.source.component or obj.reportingComponent
    host = obj.source.host or obj.reportingInstance
    return [
        last,
        obj.type,
        obj.reason,
        target,
        obj.involvedObject.fieldPath,
        f"{source}, {host}" if host else source,
        obj.message.strip(),
        first,
        count,
        obj.metadata.name,
    ]


def _event_view(obj: EventsV1Event, now_s: float) -> list[Any]:
    return _event(event_conversion.from_events_v1(obj), now_s)


def _deployment(obj: apps_v1.Deployment, now_s: float) -> list[Any]:
    status = obj.status
    return [
        obj.metadata.name,
        f"{status.readyReplicas}/{obj.spec.replicas}",
        status.updatedReplicas,
        status.availableReplicas,
        age(obj, now_s),
        *containers(obj.spec.template),
        scale.selector_text(obj.spec.selector),
    ]


def _replica_set(obj: apps_v1.ReplicaSet, now_s: float) -> list[Any]:
    return [
        obj.metadata.name,
        obj.spec.replicas,
        obj.status.replicas,
        obj.status.readyReplicas,
        age(obj, now_s),
        *containers(obj.spec.template),
        scale.selector_text(obj.spec.selector) or NONE,
    ]


CELLS: Mapping[type[Message], Cells] = {
    **kind_columns.CELLS,
    apps_v1.Deployment: _deployment,
    apps_v1.ReplicaSet: _replica_set,
    ConfigMap: _config_map,
    Endpoints: _endpoints,
    EndpointSlice: _endpoint_slice,
    Event: _event,
    EventsV1Event: _event_view,
    Lease: _lease,
    Namespace: _namespace,
    Node: _node,
    Pod: pod_columns.cells,
    PriorityClass: _priority_class,
    Secret: _secret,
    Service: _service,
    ServiceAccount: _service_account,
}
