"""The cluster's DNS zone: from Services and EndpointSlices to answers. Pure.

Source: the DNS specification of Kubernetes, version 1.1.0: A, SRV, PTR, CNAME; Services, the pods behind
them by host name or address, and pods by address. Where it leaves room, CoreDNS's kubernetes plugin.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from podyard.api.types import EndpointSlice, Service
from proxy.model import SERVICE_NAME, Network

SCHEMA_VERSION = "1.1.0"
_POD = re.compile(r"(\d+-\d+-\d+-\d+)\.([a-z0-9-]+)\.pod")


@dataclass(frozen=True, slots=True)
class Srv:
    """One SRV record's data; the target is a full name."""

    port: int
    target: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of a name.

    Attributes:
        exists: the name is there, though perhaps not with this type.
        records: data of the asked type, or of a CNAME.
        cname: `records` holds the name that this is another name of.
    """

    exists: bool
    records: tuple[Any, ...] = ()
    cname: bool = False


NOTHING = Answer(exists=False)


@dataclass(slots=True)
class Zone:
    """All names of the cluster, indexed.

    Attributes:
        domain: such as cluster.local.
        addresses: name -> A records.
        services: name -> SRV records.
        aliases: name -> the external name.
        reverse: address -> names.
        parents: names that exist only because something is below them.
        own_ranges: addresses whose names nobody else can know.
        complete: all objects are known, so that a name that is not here does not exist.
    """

    domain: str
    addresses: dict[str, list[str]] = field(default_factory=dict)
    services: dict[str, list[Srv]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    reverse: dict[str, list[str]] = field(default_factory=dict)
    parents: set[str] = field(default_factory=set)
    own_ranges: tuple[ipaddress.IPv4Network, ...] = ()
    complete: bool = True

    def covers(self, name: str) -> bool:
        """Whether a name is this zone's to answer."""
        return name == self.domain or name.endswith(f".{self.domain}")

    def lookup(self, name: str, kind: str) -> Answer:
        """What is known of a name of this zone.

        Args:
            name: lower case, without the dot at its end.
            kind: A, AAAA, SRV, CNAME, TXT, ...
        """
        if name in self.aliases:
            return Answer(exists=True, records=(self.aliases[name],), cname=True)
        if name == f"dns-version.{self.domain}":
            return Answer(exists=True, records=(SCHEMA_VERSION,) if kind == "TXT" else ())
        pod = self._pod(name)
        if pod is not None:
            return Answer(exists=True, records=(pod,) if kind == "A" else ())
        known = name in self.addresses or name in self.services or name in self.parents or name == self.domain
        if kind == "A":
            return Answer(known, tuple(self.addresses.get(name, ())))
        if kind == "SRV":
            return Answer(known, tuple(self.services.get(name, ())))
        return Answer(known)

    def pointer(self, address: str) -> Answer:
        """The names of an address, for PTR."""
        names = self.reverse.get(address)
        return Answer(exists=True, records=tuple(names)) if names else NOTHING

    def owns(self, address: str) -> bool:
        """Whether an address is a pod's or a Service's, known or not."""
        return any(ipaddress.IPv4Address(address) in network for network in self.own_ranges)

    def _pod(self, name: str) -> str | None:
        match = _POD.fullmatch(name.removesuffix(f".{self.domain}"))
        if match is None:
            return None
        try:
            return str(ipaddress.IPv4Address(match[1].replace("-", ".")))
        except ValueError:
            return None

    def add_parents(self, name: str) -> None:
        """Makes the names above a name exist."""
        while self.covers(name) and name != self.domain:
            name = name.partition(".")[2]
            self.parents.add(name)


def build(
    services: Iterable[Service],
    slices: Iterable[EndpointSlice],
    domain: str,
    network: Network | None = None,
) -> Zone:
    """The zone of the present Services.

    Args:
        network: the cluster's ranges, whose reverse names nobody else is asked for.
    """
    by_service: dict[tuple[str, str], list[EndpointSlice]] = {}
    for entry in slices:
        owner = entry.metadata.labels.get(SERVICE_NAME, "")
        if owner and entry.addressType == "IPv4":
            by_service.setdefault((entry.metadata.namespace, owner), []).append(entry)
    zone = Zone(domain, parents={f"svc.{domain}", f"pod.{domain}"})
    if network is not None:
        zone.own_ranges = (ipaddress.IPv4Network(network.pods), ipaddress.IPv4Network(network.services))
    for service in services:
        metadata = service.metadata
        name = f"{metadata.name}.{metadata.namespace}.svc.{domain}"
        endpoints = by_service.get((metadata.namespace, metadata.name), [])
        zone.add_parents(name)
        if service.spec.type == "ExternalName":
            target = service.spec.externalName.rstrip(".").lower()
            if not _is_address(target):
                zone.aliases[name] = target
        elif service.spec.clusterIP == "None":
            _endpoints(zone, name, endpoints, headless=True)
        elif service.spec.clusterIP:
            _balanced(zone, service, name)
            _endpoints(zone, name, endpoints, headless=False)
    for found in zone.addresses.values():
        found.sort()
    return zone


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _balanced(zone: Zone, service: Service, name: str) -> None:
    zone.addresses[name] = [service.spec.clusterIP]
    zone.reverse[service.spec.clusterIP] = [name]
    for port in service.spec.ports:
        # Whoever asks without port and protocol gets all of them.
        _append(zone.services, name, Srv(port.port, name))
        if port.name:
            _add_port(zone, name, port.name, port.protocol or "TCP", Srv(port.port, name))


def _endpoints(zone: Zone, name: str, slices: list[EndpointSlice], *, headless: bool) -> None:
    """Each ready endpoint has a name of its own; those of a headless Service are the Service's, too.

    A headless Service without any does not exist, as the specification wants it.
    """
    for entry in slices:
        for endpoint in entry.endpoints:
            if endpoint.conditions.HasField("ready") and not endpoint.conditions.ready:
                continue
            for address in endpoint.addresses:
                host = f"{endpoint.hostname or address.replace('.', '-')}.{name}"
                _append(zone.addresses, host, address)
                zone.add_parents(host)
                _append(zone.reverse, address, host)
                if headless:
                    _append(zone.addresses, name, address)
                for port in entry.ports:
                    record = Srv(port.port, host)
                    _append(zone.services, host, record)
                    if headless:
                        _append(zone.services, name, record)
                        if port.name:
                            _add_port(zone, name, port.name, port.protocol or "TCP", record)


def _add_port(zone: Zone, name: str, port: str, protocol: str, record: Srv) -> None:
    full = f"_{port}._{protocol.lower()}.{name}"
    _append(zone.services, full, record)
    zone.add_parents(full)


def _append(index: dict[str, list[Any]], name: str, value: Any) -> None:
    known = index.setdefault(name, [])
    if value not in known:
        known.append(value)
