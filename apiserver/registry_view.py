"""What admission and allocation may know of the cluster: a synchronous look into the watch cache."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from apiserver.rules import services
from apiserver.store.base import OutcomeUnknown
from apiserver.watchcache import WatchCache
from podyard.api import errors, resources
from podyard.api.types import Message, Namespace, PriorityClass, Service, ServiceAccount, node_v1
from podyard.base import clock, ids

# A write whose outcome is unknown may still happen for this long; its addresses stay reserved.
_UNKNOWN_S = 60.0


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


class AddressRefused(errors.Invalid):
    """An address or port is not to be had, by a view of the cluster that may be a moment old."""


class Reservation:
    """Addresses and node ports of one Service, from when they are chosen until the cache shows them.

    Attributes:
        owner: key of the Service.
        names: addresses, and ports as digits.
        revision: of the write; 0 while it is under way.
        end_s: when to forget a write that nobody knows the outcome of; monotonic time.
    """

    __slots__ = ("end_s", "names", "owner", "revision")

    def __init__(self, owner: str, names: frozenset[str]) -> None:
        self.owner = owner
        self.names = names
        self.revision = 0
        self.end_s = float("inf")

    def written(self, revision: int) -> None:
        """The Service is stored; the watch brings it."""
        self.revision = revision


class ClusterAddresses:
    """Gives Services their cluster addresses and node ports, none of them twice.

    One is taken while a cached Service has it, and reserved in this process while the write of its
    Service is under way and until the cache has come that far. A write that fails frees it at once.
    Two servers do not see each other's reservations.

    Args:
        cidr: the Service range, IPv4.
    """

    def __init__(self, cache: WatchCache, cidr: str) -> None:
        self._cache = cache
        self._cidr = cidr
        self._network = ipaddress.ip_network(cidr)
        self._reserved: list[Reservation] = []

    def assign(self, service: Service, key: str, old: Service | None = None) -> None:
        """Gives `service` families, address and ports where it needs them, and checks those it asks for.

        Nothing is reserved yet: `reserved` does that, without a pause in between.

        Args:
            service: changed.
            key: the Service's own key; what is reserved for it is its own.
            old: the Service before, of an update.

        Raises:
            Invalid: families do not fit; AddressRefused: what is wanted is taken or out of range.
            InternalError: the range is full.
        """
        causes = services.settle_families(service, old)
        if causes:
            raise errors.Invalid.of("Service", service.metadata.name, causes)
        taken = self._names_reserved(key)
        ports = {int(name) for name in taken if name.isdigit()}
        row = resources.by_message(Service)
        for item in self._cache.select(row.storage_prefix).objects:
            if item.key != key:
                taken.update(item.message.spec.clusterIPs)
                ports.update(services.node_ports(item.message))
        wanted = service.spec.clusterIP
        if service.spec.type == services.EXTERNAL_NAME:
            pass  # Validation wants none.
        elif wanted and wanted != services.HEADLESS:
            self._check(service, wanted, taken)
        elif not services.assign_cluster_ip(service, self._cidr, taken, ids.choice_index(1 << 16)):
            raise errors.InternalError.of("failed to allocate a serviceIP: range is full")
        causes = services.assign_node_ports(service, ports, ids.choice_index(1 << 16))
        if causes:
            raise AddressRefused.of("Service", service.metadata.name, causes)

    @contextmanager
    def reserved(self, key: str, message: Message) -> Iterator[Reservation]:
        """Keeps what a Service was given from others while it is written; other kinds have nothing."""
        names = _names(message) if isinstance(message, Service) else frozenset()
        reservation = Reservation(key, names)
        if not names:
            yield reservation
            return
        self._reserved.append(reservation)
        try:
            yield reservation
        except (OutcomeUnknown, asyncio.CancelledError):
            reservation.end_s = clock.real_monotonic_s() + _UNKNOWN_S
            raise
        except BaseException:
            self._reserved.remove(reservation)
            raise

    def _names_reserved(self, key: str) -> set[str]:
        """What others hold, after forgetting what is over."""
        now_s, revision = clock.real_monotonic_s(), self._cache.revision
        self._reserved = [
            held for held in self._reserved if not 0 < held.revision <= revision and now_s < held.end_s
        ]
        return {name for held in self._reserved if held.owner != key for name in held.names}

    def _check(self, service: Service, wanted: str, taken: set[str]) -> None:
        address = ipaddress.ip_address(wanted)
        if address not in self._network:
            why = "the provided network does not match the current range"
        elif address in (self._network.network_address, self._network.broadcast_address):
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
        raise AddressRefused.of("Service", service.metadata.name, [cause])


def _names(service: Service) -> frozenset[str]:
    addresses = {address for address in service.spec.clusterIPs if address != services.HEADLESS}
    return frozenset(addresses | {str(number) for number in services.node_ports(service)})
