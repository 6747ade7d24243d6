"""What admission and allocation may know of the cluster: a synchronous look into the watch cache."""

from __future__ import annotations

import ipaddress
from typing import Any, cast

from apiserver.rules import services
from apiserver.watchcache import WatchCache
from podyard.api import errors, resources
from podyard.api.types import Message, Namespace, PriorityClass, Service, ServiceAccount, node_v1
from podyard.base import clock, ids

# An address stays reserved this long for a Service whose write is under way.
_RESERVED_S = 60.0


class CacheView:
    """`apiserver.rules.admission.ClusterView` over the watch cache.

    Answers may be a moment old; the verbs look again with a fresh cache before they refuse anything.
    """

    def __init__(self, cache: WatchCache) -> None:
        self._cache = cache

    def namespace(self, name: str) -> Namespace | None:
        return cast("Namespace | None", self._message(Namespace, name))

    def service_account(self, namespace: str, name: str) -> ServiceAccount | None:
        return cast("ServiceAccount | None", self._message(ServiceAccount, name, namespace))

    def priority_class(self, name: str) -> PriorityClass | None:
        return cast("PriorityClass | None", self._message(PriorityClass, name))

    def default_priority_classes(self) -> list[PriorityClass]:
        return [item for item in self.all_of(PriorityClass) if item.globalDefault]

    def runtime_class(self, name: str) -> node_v1.RuntimeClass | None:
        return cast("node_v1.RuntimeClass | None", self._message(node_v1.RuntimeClass, name))

    def all_of(self, kind: type[Message]) -> list[Any]:
        listing: Any = self._cache.select(resources.by_message(kind).storage_prefix)
        return [item.message for item in listing.objects]

    def _message(self, kind: type[Message], name: str, namespace: str = "") -> object | None:
        found = self._cache.get(resources.by_message(kind).key(namespace, name))
        return None if found is None else found.message  # type: ignore[attr-defined]


class ClusterAddresses:
    """Gives Services their cluster addresses, none of them twice.

    An address is taken while a cached Service has it, and reserved in this process from the moment
    it is chosen until its Service must have come back through the watch.

    Args:
        cidr: the Service range, IPv4.
    """

    def __init__(self, cache: WatchCache, cidr: str) -> None:
        self._cache = cache
        self._cidr = cidr
        self._network = ipaddress.ip_network(cidr)
        self._reserved: dict[str, tuple[float, str]] = {}

    def assign(self, service: Service, key: str) -> None:
        """Gives `service` an address where it needs one, and checks one that it asks for.

        Args:
            service: changed.
            key: the Service's own key; addresses reserved for it are its own.

        Raises:
            Invalid: the wanted address is taken or out of range.
            InternalError: the range is full.
        """
        now_s = clock.real_monotonic_s()
        self._reserved = {address: held for address, held in self._reserved.items() if held[0] > now_s}
        taken = {address for address, (_, owner) in self._reserved.items() if owner != key}
        row = resources.by_message(Service)
        for item in self._cache.select(row.storage_prefix).objects:
            if item.key != key:
                taken.update(item.message.spec.clusterIPs)
        wanted = service.spec.clusterIP
        if wanted and wanted != services.HEADLESS:
            self._check(service, wanted, taken)
        elif not services.assign_cluster_ip(service, self._cidr, taken, ids.choice_index(1 << 16)):
            raise errors.InternalError.of("failed to allocate a serviceIP: range is full")
        if service.spec.clusterIP and service.spec.clusterIP != services.HEADLESS:
            self._reserved[service.spec.clusterIP] = (now_s + _RESERVED_S, key)
        self._assign_node_ports(service, key, now_s)

    def _assign_node_ports(self, service: Service, key: str, now_s: float) -> None:
        taken = {int(name) for name, (_, owner) in self._reserved.items() if name.isdigit() and owner != key}
        row = resources.by_message(Service)
        for item in self._cache.select(row.storage_prefix).objects:
            if item.key != key:
                taken.update(services.node_ports(item.message))
        causes = services.assign_node_ports(service, taken, ids.choice_index(1 << 16))
        if causes:
            raise errors.Invalid.of("Service", service.metadata.name, causes)
        for number in services.node_ports(service):
            self._reserved[str(number)] = (now_s + _RESERVED_S, key)

    def _check(self, service: Service, wanted: str, taken: set[str]) -> None:
        try:
            inside = ipaddress.ip_address(wanted) in self._network
        except ValueError:
            return  # Validation names it.
        if not inside:
            why = (
                f"the provided IP ({wanted}) is not in the valid range. "
                f"The range of valid IPs is {self._cidr}"
            )
        elif wanted in taken:
            why = "provided IP is already allocated"
        else:
            return
        detail = f"failed to allocate IP {wanted}: {why}"
        cause = errors.invalid("spec.clusterIPs", list(service.spec.clusterIPs), detail)
        raise errors.Invalid.of("Service", service.metadata.name, [cause])
