"""Defaults of pods and pod templates.

`pod_spec` holds for templates too; `pod` adds what only a Pod itself gets (requests from limits, host
ports, service links).

Counterpart: kubernetes pkg/apis/core/v1/defaults.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, MutableMapping
from typing import Any

import orjson

from podyard.api import facts, pod_resources, quantity
from podyard.api.types import Container, Pod, PodSpec, Quantity, Volume, core_v1

DEFAULT_MODE = 0o644
GRACE_S = 30
TOKEN_EXPIRATION_S = 3600

_WITH_MODE = ("configMap", "secret", "downwardAPI", "projected")
_SCALARS = ("string", "bool", "int32", "int64")
_TAG = re.compile(r"^(?:[^/]*/)*[^/:@]+(?::(?P<tag>[^/@]+))?(?P<digest>@.+)?$")


def pod(obj: Pod) -> None:
    """Defaults of a Pod."""
    spec = obj.spec
    pod_spec(spec)
    if not spec.HasField("enableServiceLinks"):
        spec.enableServiceLinks = True
    for container in (*spec.containers, *spec.initContainers):
        # Limits stand for missing requests.
        for name, limit in container.resources.limits.items():
            if name not in container.resources.requests:
                container.resources.requests[name].CopyFrom(limit)
        if spec.hostNetwork:
            for port in container.ports:
                port.hostPort = port.hostPort or port.containerPort
    _pod_level_resources(spec)
    status = obj.status
    if status.podIP and [item.ip for item in status.podIPs[:1]] != [status.podIP]:
        # Where both are given and differ, the older field counts: old clients know no other.
        del status.podIPs[:]
        status.podIPs.add(ip=status.podIP)
    elif status.podIPs:
        status.podIP = status.podIPs[0].ip
    if status.hostIP and not status.hostIPs:
        status.hostIPs.add(ip=status.hostIP)


def pod_spec(spec: PodSpec) -> None:
    """Defaults of a pod's spec, in pods and templates."""
    spec.dnsPolicy = spec.dnsPolicy or "ClusterFirst"
    spec.restartPolicy = spec.restartPolicy or "Always"
    spec.schedulerName = spec.schedulerName or "default-scheduler"
    if not spec.HasField("securityContext"):
        spec.securityContext.SetInParent()
    if not spec.HasField("terminationGracePeriodSeconds"):
        spec.terminationGracePeriodSeconds = GRACE_S
    # The deprecated twin of serviceAccountName.
    spec.serviceAccountName = spec.serviceAccountName or spec.serviceAccount
    if spec.serviceAccountName:
        spec.serviceAccount = spec.serviceAccountName
    round_up(spec.overhead)
    round_up(spec.resources.limits)
    round_up(spec.resources.requests)
    for volume in spec.volumes:
        _volume(volume)
    for container in (*spec.containers, *spec.initContainers):
        _container(container)
    for ephemeral in spec.ephemeralContainers:
        _container(ephemeral.ephemeralContainerCommon)


def round_up(resources: MutableMapping[str, Quantity]) -> None:
    """Rounds every quantity up to thousandths; what can't be read stays for validation."""
    for value in resources.values():
        try:
            text = str(quantity.of(value).rounded_to_milli())
        except quantity.QuantityError:
            continue
        if text != value.string:
            value.string = text


def _container(container: Container | core_v1.EphemeralContainerCommon) -> None:
    container.imagePullPolicy = container.imagePullPolicy or pull_policy(container.image)
    container.terminationMessagePath = container.terminationMessagePath or "/dev/termination-log"
    container.terminationMessagePolicy = container.terminationMessagePolicy or "File"
    for port in container.ports:
        port.protocol = port.protocol or "TCP"
    round_up(container.resources.limits)
    round_up(container.resources.requests)
    for variable in container.env:
        source = variable.valueFrom
        if source.HasField("fieldRef"):
            source.fieldRef.apiVersion = source.fieldRef.apiVersion or "v1"
        if source.HasField("fileKeyRef") and not source.fileKeyRef.HasField("optional"):
            source.fileKeyRef.optional = False
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.HasField(name):
            _probe(getattr(container, name))
    if container.HasField("lifecycle"):
        for name in ("postStart", "preStop"):
            if container.lifecycle.HasField(name):
                _handler(getattr(container.lifecycle, name))


def pull_policy(image: str) -> str:
    """Always for `latest` and for no tag at all, else IfNotPresent."""
    match = _TAG.match(image)
    if match is None:
        return "IfNotPresent"
    tag = match["tag"] or ("" if match["digest"] else "latest")
    return "Always" if tag == "latest" else "IfNotPresent"


def _probe(probe: Any) -> None:
    probe.timeoutSeconds = probe.timeoutSeconds or 1
    probe.periodSeconds = probe.periodSeconds or 10
    probe.successThreshold = probe.successThreshold or 1
    probe.failureThreshold = probe.failureThreshold or 3
    handler = probe.handler
    _handler(handler)
    if handler.HasField("grpc") and not handler.grpc.HasField("service"):
        handler.grpc.service = ""


def _handler(handler: Any) -> None:
    if handler.HasField("httpGet"):
        handler.httpGet.path = handler.httpGet.path or "/"
        handler.httpGet.scheme = handler.httpGet.scheme or "HTTP"


def _volume(volume: Volume) -> None:
    source = volume.volumeSource
    sources = source.ListFields()
    if not sources:
        source.emptyDir.SetInParent()
        return
    for field, chosen in sources:
        if field.name in ("configMap", "secret", "downwardAPI", "projected") and not chosen.HasField(
            "defaultMode"
        ):
            chosen.defaultMode = DEFAULT_MODE
        markers(chosen)
    if source.HasField("hostPath") and not source.hostPath.HasField("type"):
        source.hostPath.type = ""
    if source.HasField("image") and not source.image.pullPolicy:
        source.image.pullPolicy = pull_policy(source.image.reference)
    if source.HasField("downwardAPI"):
        _field_refs(source.downwardAPI.items)
    if source.HasField("ephemeral"):
        claim = source.ephemeral.volumeClaimTemplate.spec
        if not claim.HasField("volumeMode"):
            claim.volumeMode = "Filesystem"
    for projection in source.projected.sources:
        if projection.HasField("downwardAPI"):
            _field_refs(projection.downwardAPI.items)
        token = projection.serviceAccountToken
        if projection.HasField("serviceAccountToken") and not token.HasField("expirationSeconds"):
            token.expirationSeconds = TOKEN_EXPIRATION_S


def _field_refs(items: Iterable[Any]) -> None:
    for item in items:
        if item.HasField("fieldRef"):
            item.fieldRef.apiVersion = item.fieldRef.apiVersion or "v1"


def markers(message: Any) -> None:
    """Defaults that upstream writes as markers on the type; they are in the field table."""
    for fact in facts.fields().get(message.DESCRIPTOR.full_name, ()):
        if not fact.default or fact.label != "optional" or fact.type not in _SCALARS:
            continue
        unset = not message.HasField(fact.name) if fact.pointer else not getattr(message, fact.name)
        if unset:
            setattr(message, fact.name, orjson.loads(fact.default))


def _pod_level_resources(spec: PodSpec) -> None:
    """Requests for the whole pod follow the containers', else the pod's limits."""
    if not spec.HasField("resources"):
        return
    own = spec.resources
    asked = pod_resources.container_requests(spec)
    for name, limit in own.limits.items():
        if name not in own.requests and pod_resources.is_pod_level(name):
            if name in asked and not name.startswith("hugepages-"):
                own.requests[name].string = str(asked[name])
            else:
                own.requests[name].CopyFrom(limit)
    if own.limits or own.requests:
        container_limits = pod_resources.amounts({})
        for container in spec.containers:
            for name, amount in pod_resources.amounts(container.resources.limits).items():
                known = container_limits.get(name)
                container_limits[name] = amount if known is None else known + amount
        for name, amount in container_limits.items():
            if name.startswith("hugepages-") and name not in own.limits and name not in own.requests:
                own.limits[name].string = str(amount)
