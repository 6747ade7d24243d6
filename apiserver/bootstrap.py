"""What an API server makes sure of once it serves: system namespaces, priority classes, its own Service.

Every server does so at its start and every ten seconds, and several may at once: what is there already
is left alone.
The endpoints of the Service `kubernetes` follow the servers' addresses (upstream: the lease-less
master count reconciler for a single server).
"""

from __future__ import annotations

from collections.abc import Callable

from apiserver.auth.user import RequestContext, UserInfo
from apiserver.registry import Registry
from podyard.api import errors, resources
from podyard.api.types import (
    Endpoints,
    EndpointSlice,
    Message,
    Namespace,
    PriorityClass,
    Service,
    copy_of,
    meta_v1,
)
from podyard.base import clock, ids, log
from podyard.base.backoff import Backoff

_LOGGER = log.get_logger("apiserver.bootstrap")
_BACKOFF = Backoff(base_s=0.1, cap_s=5.0)
# Upstream: the interval of its kubernetes-service controller.
_LOOK_S = 10.0
SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_PRIORITY_CLASSES = {
    "system-node-critical": (
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    "system-cluster-critical": (
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node "
        "if necessary.",
    ),
}
_SELF = RequestContext(UserInfo("system:apiserver", ("system:masters", "system:authenticated")))


class Bootstrap:
    """Creates and keeps the system's own objects.

    Args:
        address: where this server is reached by pods; empty where there are none (simulation).
        port: of REST at that address.
        service_ip: first address of the Service range.
        dns_ip: where pods ask for names.
    """

    def __init__(self, registry: Registry, *, address: str, port: int, service_ip: str, dns_ip: str) -> None:
        self.done = False
        self._registry = registry
        self._address = address
        self._port = port
        self._service_ip = service_ip
        self._dns_ip = dns_ip

    async def run(self) -> None:
        """Makes them, then looks again now and then: someone may delete them. Ends by cancellation only."""
        failures = 0
        while True:
            try:
                await self._ensure_all()
                self.done, failures = True, 0
                await clock.real_sleep(_LOOK_S * (1 + 0.1 * ids.jitter()))
            except errors.ApiError as error:
                level = _LOGGER.debug if failures < 5 else _LOGGER.warning
                level("system objects not there", error=error.message)
                await clock.real_sleep(_BACKOFF.delay_s(failures, ids.jitter()))
                failures += 1

    async def _ensure_all(self) -> None:
        for name in SYSTEM_NAMESPACES:
            await self._ensure(Namespace(metadata={"name": name}))
        for name, (value, text) in _PRIORITY_CLASSES.items():
            await self._ensure(
                PriorityClass(metadata={"name": name}, value=value, globalDefault=False, description=text)
            )
        if self._address:
            await self._ensure(self._service())
            await self._ensure(self._dns())
            await self._bring_to(self._endpoints(), _same_subsets)
            await self._bring_to(self._slice(), _same_slice)

    async def _ensure(self, obj: Message) -> None:
        row, metadata = resources.by_message(type(obj)), obj.metadata  # type: ignore[attr-defined]
        try:
            await self._registry.get(_SELF, row, metadata.namespace, metadata.name)
        except errors.NotFound:
            try:
                await self._registry.create(_SELF, row, metadata.namespace, obj, meta_v1.CreateOptions())
            except errors.AlreadyExists:
                pass  # another server was faster

    async def _bring_to(self, wanted: Message, same: Callable[[Message, Message], bool]) -> None:
        row, metadata = resources.by_message(type(wanted)), wanted.metadata  # type: ignore[attr-defined]
        await self._ensure(wanted)
        item = await self._registry.get(_SELF, row, metadata.namespace, metadata.name)
        if same(item.message, wanted):
            return
        changed = copy_of(wanted)
        changed.metadata.resourceVersion = item.message.metadata.resourceVersion  # type: ignore[attr-defined]
        await self._registry.update(
            _SELF, row, metadata.namespace, metadata.name, changed, meta_v1.UpdateOptions()
        )

    def _service(self) -> Service:
        return Service(
            metadata={
                "name": "kubernetes",
                "namespace": "default",
                "labels": {"component": "apiserver", "provider": "kubernetes"},
            },
            spec={
                "clusterIP": self._service_ip,
                "clusterIPs": [self._service_ip],
                "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack",
                "type": "ClusterIP",
                "sessionAffinity": "None",
                "ports": [
                    {
                        "name": "https",
                        "protocol": "TCP",
                        "port": 443,
                        "targetPort": {"type": 0, "intVal": self._port},
                    }
                ],
            },
        )

    def _dns(self) -> Service:
        """Every node answers at this address itself, so the Service has no endpoints."""
        ports = [("dns", "UDP"), ("dns-tcp", "TCP")]
        return Service(
            metadata={
                "name": "kube-dns",
                "namespace": "kube-system",
                "labels": {"k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS"},
            },
            spec={
                "clusterIP": self._dns_ip,
                "clusterIPs": [self._dns_ip],
                "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack",
                "type": "ClusterIP",
                "sessionAffinity": "None",
                "ports": [
                    {"name": name, "protocol": protocol, "port": 53, "targetPort": {"type": 0, "intVal": 53}}
                    for name, protocol in ports
                ],
            },
        )

    def _endpoints(self) -> Endpoints:
        return Endpoints(
            metadata={
                "name": "kubernetes",
                "namespace": "default",
                "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
            },
            subsets=[
                {
                    "addresses": [{"ip": self._address}],
                    "ports": [{"name": "https", "port": self._port, "protocol": "TCP"}],
                }
            ],
        )

    def _slice(self) -> EndpointSlice:
        return EndpointSlice(
            metadata={
                "name": "kubernetes",
                "namespace": "default",
                "labels": {"kubernetes.io/service-name": "kubernetes"},
            },
            addressType="IPv4",
            endpoints=[{"addresses": [self._address], "conditions": {"ready": True}}],
            ports=[{"name": "https", "port": self._port, "protocol": "TCP"}],
        )


def _same_subsets(present: Message, wanted: Message) -> bool:
    return list(present.subsets) == list(wanted.subsets)  # type: ignore[attr-defined]


def _same_slice(present: Message, wanted: Message) -> bool:
    return (list(present.endpoints), list(present.ports)) == (list(wanted.endpoints), list(wanted.ports))  # type: ignore[attr-defined]
