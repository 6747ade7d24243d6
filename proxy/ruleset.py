"""The node's packet rules: from what is desired to an nft transaction with only what changed. Pure.

One table, `ip podyard`. A connection is looked up once, by address, protocol and port, in a verdict
map; the chain found there picks a backend. So the cost of a packet does not grow with the number of
Services, and a change touches a few elements. The first transaction of a process replaces the whole
table: what a former one left is not trusted.

A client that must stay with its backend is remembered in a set of that backend's, by a name made of the
backend alone: other backends may come and go, and it stays. The first transaction takes the memory of
the table before over.

The guard against leaks stands in a table of its own that the node's entrypoint sets first; this one
repeats it, so that a node whose rules were flushed is safe again with the next transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.model import Backend, Balanced, Desired, Network

TABLE = "podyard"
# Connections that must come back through this node: their source becomes the node's address.
MASQUERADE_MARK = "0x4000"
_KEY = "ipv4_addr . inet_proto . inet_service"

Elements = Mapping[str, str]
# Affinity set -> client address -> seconds that are left.
Memory = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Rules:
    """The changing part of the table.

    Attributes:
        chains: name -> rules.
        maps: map or set name -> element -> value (empty for sets).
        affinity: dynamic set name -> timeout in seconds.
    """

    chains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    maps: dict[str, dict[str, str]] = field(default_factory=dict)
    affinity: dict[str, int] = field(default_factory=dict)


_MAPS = {
    "service_ips": f"type {_KEY} : verdict;",
    "node_ports": "type inet_proto . inet_service : verdict;",
    "guarded": f"type {_KEY} : verdict;",
    "cluster_ips": "type ipv4_addr;",
    "refused": f"type {_KEY};",
    "refused_node_ports": "type inet_proto . inet_service;",
    "hairpins": "type ipv4_addr . ipv4_addr;",
}
_SETS = frozenset({"cluster_ips", "refused", "refused_node_ports", "hairpins"})


def rules_of(wanted: Desired, network: Network) -> Rules:
    """Chains and elements for every Service, and the masquerading of this node's pods."""
    rules = Rules(maps={name: {} for name in _MAPS})
    own = f"ip saddr {wanted.own_range} ip daddr != {network.pods} masquerade" if wanted.own_range else ""
    rules.chains["own_pods"] = (own,) if own else ()
    for service in wanted.services:
        _add(rules, service, network)
    return rules


def _add(rules: Rules, service: Balanced, network: Network) -> None:
    rules.maps["cluster_ips"][service.address] = ""
    for backend in {*service.everywhere, *service.here}:
        rules.maps["hairpins"][f"{backend.address} . {backend.address}"] = ""
    inside = [_element(service.address, service)]
    outside = [_element(address, service) for address in service.external]
    node_port = [f"{service.protocol} . {service.node_port}"] if service.node_port else []
    if not service.everywhere:
        rules.maps["refused"].update(dict.fromkeys([*inside, *outside], ""))
        rules.maps["refused_node_ports"].update(dict.fromkeys(node_port, ""))
        return
    if service.guarded:
        guard = f"fw_{_digest(service.key)}"
        rules.chains[guard] = (f"ip saddr != {{ {', '.join(service.sources)} }} drop",)
        elements = [_element(address, service) for address in service.guarded]
        rules.maps["guarded"].update(dict.fromkeys(elements, f"goto {guard}"))
    to_all, to_own = _policy_chains(rules, service, network)
    # There are backends, but none of them may serve here: silence rather than refusal.
    rules.maps["service_ips"].update(dict.fromkeys(inside, to_own if service.inside_local else to_all))
    if service.has_outside:
        chain = f"ext_{_digest(service.key)}"
        rules.chains[chain] = _from_outside(service, network, to_all, to_own)
        rules.maps["service_ips"].update(dict.fromkeys(outside, f"goto {chain}"))
        rules.maps["node_ports"].update(dict.fromkeys(node_port, f"goto {chain}"))


def _element(address: str, service: Balanced) -> str:
    return f"{address} . {service.protocol} . {service.port}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _policy_chains(rules: Rules, service: Balanced, network: Network) -> tuple[str, str]:
    """Verdicts for connections that may go anywhere, and for those that stay on this node."""
    verdicts = []
    wanted = (
        (f"svc_{_digest(service.key)}", service.everywhere, not service.inside_local or service.has_outside),
        (f"loc_{_digest(service.key)}", service.here, service.inside_local or service.outside_local),
    )
    # Who is no pod could not be answered past this node: its source becomes the node's.
    masquerade = f"ip daddr {service.address} ip saddr != {network.pods} {_mark()}"
    for chain, backends, used in wanted:
        if used and backends:
            rules.chains[chain] = (masquerade, *_balance(rules, service, backends))
        verdicts.append(f"goto {chain}" if used and backends else "drop")
    return verdicts[0], verdicts[1]


def _mark() -> str:
    return f"meta mark set meta mark or {MASQUERADE_MARK}"


def _from_outside(service: Balanced, network: Network, to_all: str, to_own: str) -> tuple[str, ...]:
    if not service.outside_local:
        return (_mark(), to_all)
    # A pod, or this node itself, is as if it had gone out to a balancer and come back.
    return (
        f"ip saddr {network.pods} {to_all}",
        f"fib saddr type local {_mark()}",
        f"fib saddr type local {to_all}",
        to_own,
    )


def _balance(rules: Rules, service: Balanced, backends: tuple[Backend, ...]) -> list[str]:
    """Rules that send each new connection to one of the backends; a client stays with its own if asked."""
    count = len(backends)
    if service.affinity_s:
        chains = [_sticky(rules, service, backend) for backend in backends]
        stay = [f"ip saddr @{chain} goto {chain}" for chain in chains]
        choices = ", ".join(f"{number} : goto {chain}" for number, chain in enumerate(chains))
        return [*stay, f"numgen random mod {count} vmap {{ {choices} }}"]
    if count == 1:
        return [_dnat(service.protocol, backends[0])]
    choices = ", ".join(f"{n} : {b.address} . {b.port}" for n, b in enumerate(backends))
    return [f"meta l4proto {service.protocol} dnat ip to numgen random mod {count} map {{ {choices} }}"]


def _sticky(rules: Rules, service: Balanced, backend: Backend) -> str:
    """The chain, and set by the same name, of a backend that remembers its clients."""
    # The time is part of the name: another time is another set.
    name = "aff_" + _digest(f"{service.key} {service.affinity_s} {backend.address}:{backend.port}")
    rules.affinity[name] = service.affinity_s
    rules.chains[name] = (f"update @{name} {{ ip saddr }}", _dnat(service.protocol, backend))
    return name


def _dnat(protocol: str, backend: Backend) -> str:
    return f"meta l4proto {protocol} dnat to {backend.address}:{backend.port}"


# Transactions.


def whole(rules: Rules, network: Network, memory: Memory | None = None) -> str:
    """The table as it must be, replacing whatever there is.

    Args:
        memory: which clients stay where, of the table before; what no longer has a set is forgotten.
    """
    lines = [f"table ip {TABLE}\ndelete table ip {TABLE}\n{_frame(network)}{changes(_empty(), rules)}"]
    for name, clients in sorted((memory or {}).items()):
        known = {
            f"{address} timeout {rules.affinity[name]}s expires {left_s}s"
            for address, left_s in clients.items()
            if 0 < left_s <= rules.affinity.get(name, 0)
        }
        if known:
            lines.append(f"add element ip {TABLE} {name} {{ {', '.join(sorted(known))} }}\n")
    return "".join(lines)


def memory_of(listing: Mapping[str, Any]) -> Memory:
    """Which clients stay where, from nft's own JSON of the table."""
    found: dict[str, dict[str, int]] = {}
    for entry in listing.get("nftables", ()):
        made = entry.get("set", {})
        if made.get("name", "").startswith("aff_"):
            elements = [
                row["elem"] for row in made.get("elem", ()) if isinstance(row, dict) and "elem" in row
            ]
            found[made["name"]] = {row["val"]: row.get("expires", 0) for row in elements}
    return found


def _empty() -> Rules:
    return Rules(maps={name: {} for name in _MAPS})


def changes(old: Rules, new: Rules) -> str:
    """Commands that turn one state of the changing part into another; empty when they are equal."""
    lines: list[str] = []
    for name in sorted(new.affinity.keys() - old.affinity.keys()):
        kind = f"type ipv4_addr; flags dynamic,timeout; timeout {new.affinity[name]}s; size 65535;"
        lines.append(f"add set ip {TABLE} {name} {{ {kind} }}")
    fresh = [name for name in sorted(new.chains) if name not in old.chains]
    lines += [f"add chain ip {TABLE} {name}" for name in fresh]
    for name in sorted(new.maps):
        stale = [key for key, value in old.maps[name].items() if new.maps[name].get(key) != value]
        lines += _elements("delete", name, {key: old.maps[name][key] for key in sorted(stale)})
    for name in sorted(new.chains):
        if old.chains.get(name) != new.chains[name]:
            if name in old.chains:
                lines.append(f"flush chain ip {TABLE} {name}")
            lines += [f"add rule ip {TABLE} {name} {rule}" for rule in new.chains[name]]
    for name in sorted(new.maps):
        added = {k: v for k, v in sorted(new.maps[name].items()) if old.maps[name].get(k) != v}
        lines += _elements("add", name, added)
    gone_chains = sorted(old.chains.keys() - new.chains.keys())
    # First empty, then deleted: they may lead to each other.
    lines += [f"flush chain ip {TABLE} {name}" for name in gone_chains]
    lines += [f"delete chain ip {TABLE} {name}" for name in gone_chains]
    lines += [f"delete set ip {TABLE} {name}" for name in sorted(old.affinity.keys() - new.affinity.keys())]
    return "".join(f"{line}\n" for line in lines)


def _elements(verb: str, name: str, elements: Elements) -> list[str]:
    if not elements:
        return []
    shown = ", ".join(key if name in _SETS else f"{key} : {value}" for key, value in elements.items())
    return [f"{verb} element ip {TABLE} {name} {{ {shown} }}"]


def _frame(network: Network) -> str:
    """Maps and base chains: what never changes.

    Differs from upstream: TCP is refused with a reset, since a plain reject costs a pod a second; an unused
    address of the Services is refused, not silent; node ports are on every address of the node, not on its
    first alone, since the engine may give it one per network.
    """
    maps = "".join(
        f"    {'set' if name in _SETS else 'map'} {name} {{ {kind} }}\n" for name, kind in _MAPS.items()
    )
    lookup = "ip daddr . meta l4proto . th dport"
    no_endpoints = f"{lookup} @refused"
    no_node_port = "fib daddr type local meta l4proto . th dport @refused_node_ports"
    return f"""table ip {TABLE} {{
{maps}
    chain own_pods {{
    }}
    chain services {{
        {lookup} vmap @service_ips
        fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap @node_ports
    }}
    chain guard_prerouting {{
        type filter hook prerouting priority -110; policy accept;
        ct state new {lookup} vmap @guarded
    }}
    chain guard_output {{
        type filter hook output priority -110; policy accept;
        ct state new {lookup} vmap @guarded
    }}
    chain prerouting {{
        type nat hook prerouting priority dstnat; policy accept;
        jump services
    }}
    chain output_nat {{
        type nat hook output priority -100; policy accept;
        jump services
    }}
    chain postrouting {{
        type nat hook postrouting priority srcnat; policy accept;
        meta mark & {MASQUERADE_MARK} != 0 masquerade
        ct status dnat ip saddr . ip daddr @hairpins masquerade
        jump own_pods
    }}
    chain refusal {{
        meta l4proto tcp reject with tcp reset
        reject with icmp port-unreachable
    }}
    chain refuse {{
        {no_endpoints} goto refusal
        ip daddr @cluster_ips goto refusal
        ip daddr {network.services} reject with icmp host-unreachable
    }}
    chain input {{
        type filter hook input priority filter; policy accept;
        ct state new {no_endpoints} goto refusal
        ct state new {no_node_port} goto refusal
    }}
    chain forward {{
        type filter hook forward priority filter; policy accept;
        jump refuse
    }}
    chain output {{
        type filter hook output priority filter; policy accept;
        oifname != "lo" jump refuse
    }}
}}
"""
