"""The node's packet rules: from what is desired to an nft transaction with only what changed. Pure.

One table, `ip podyard`. A connection is looked up once, by address, protocol and port, in a verdict
map; the chain found there picks a backend. So the cost of a packet does not grow with the number of
Services, and a change touches a few elements. The first transaction of a process replaces the whole
table: what a former one left is not trusted.

The guard against leaks stands in a table of its own that the node's entrypoint sets first; this one
repeats it, so that a node whose rules were flushed is safe again with the next transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.model import Backend, Balanced, Desired, Network

TABLE = "podyard"
# Connections that must come back through this node: their source becomes the node's address.
MASQUERADE_MARK = "0x4000"
_KEY = "ipv4_addr . inet_proto . inet_service"

Elements = Mapping[str, str]


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
    "refused": f"type {_KEY};",
    "refused_node_ports": "type inet_proto . inet_service;",
    "hairpins": "type ipv4_addr . ipv4_addr;",
}
_SETS = frozenset({"refused", "refused_node_ports", "hairpins"})


def rules_of(wanted: Desired, network: Network) -> Rules:
    """Chains and elements for every Service, and the masquerading of this node's pods."""
    rules = Rules(maps={name: {} for name in _MAPS})
    own = f"ip saddr {wanted.own_range} ip daddr != {network.pods} masquerade" if wanted.own_range else ""
    rules.chains["own_pods"] = (own,) if own else ()
    for service in wanted.services:
        _add(rules, service, network)
    return rules


def _add(rules: Rules, service: Balanced, network: Network) -> None:
    digest = hashlib.sha256(service.key.encode()).hexdigest()[:12]
    for backend in {*service.inside, *service.outside}:
        rules.maps["hairpins"][f"{backend.address} . {backend.address}"] = ""
    _addresses(rules, service, network, f"svc_{digest}")
    if service.node_port:
        _node_port(rules, service, f"ext_{digest}")


def _addresses(rules: Rules, service: Balanced, network: Network, chain: str) -> None:
    elements = [f"{address} . {service.protocol} . {service.port}" for address in service.addresses]
    if service.inside:
        # Who is no pod could not be answered past this node: its source becomes the node's.
        lines = [f"ip saddr != {network.pods} meta mark set meta mark or {MASQUERADE_MARK}"]
        _balance(rules, chain, service, service.inside, lines)
        rules.maps["service_ips"].update(dict.fromkeys(elements, f"goto {chain}"))
    elif service.inside_elsewhere:
        rules.maps["service_ips"].update(dict.fromkeys(elements, "drop"))
    else:
        rules.maps["refused"].update(dict.fromkeys(elements, ""))


def _node_port(rules: Rules, service: Balanced, chain: str) -> None:
    element = f"{service.protocol} . {service.node_port}"
    if service.outside:
        lines = [] if service.outside_local else [f"meta mark set meta mark or {MASQUERADE_MARK}"]
        _balance(rules, chain, service, service.outside, lines)
        rules.maps["node_ports"][element] = f"goto {chain}"
    elif service.outside_elsewhere:
        rules.maps["node_ports"][element] = "drop"
    else:
        rules.maps["refused_node_ports"][element] = ""


def _balance(
    rules: Rules, chain: str, service: Balanced, backends: tuple[Backend, ...], lines: list[str]
) -> None:
    """A chain that sends each new connection to one of the backends; a client stays with its own if asked."""
    count = len(backends)
    if service.affinity_s:
        for number, backend in enumerate(backends):
            # The time is part of the name: another time is another set.
            name = f"{chain}_{service.affinity_s}_{number}"
            rules.affinity[name] = service.affinity_s
            lines.append(f"ip saddr @{name} goto {name}")
            rules.chains[name] = (f"update @{name} {{ ip saddr }}", _dnat(service.protocol, backend))
        choices = ", ".join(
            f"{number} : goto {chain}_{service.affinity_s}_{number}" for number in range(count)
        )
        lines.append(f"numgen random mod {count} vmap {{ {choices} }}")
    elif count == 1:
        lines.append(_dnat(service.protocol, backends[0]))
    else:
        choices = ", ".join(f"{n} : {b.address} . {b.port}" for n, b in enumerate(backends))
        lines.append(
            f"meta l4proto {service.protocol} dnat ip to numgen random mod {count} map {{ {choices} }}"
        )
    rules.chains[chain] = tuple(lines)


def _dnat(protocol: str, backend: Backend) -> str:
    return f"meta l4proto {protocol} dnat to {backend.address}:{backend.port}"


# Transactions.


def whole(rules: Rules, network: Network) -> str:
    """The table as it must be, replacing whatever there is."""
    return f"table ip {TABLE}\ndelete table ip {TABLE}\n{_frame(network)}{changes(_empty(), rules)}"


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
    """Maps and base chains: what never changes."""
    maps = "".join(
        f"    {'set' if name in _SETS else 'map'} {name} {{ {kind} }}\n" for name, kind in _MAPS.items()
    )
    lookup = "ip daddr . meta l4proto . th dport"
    reset = "meta l4proto tcp reject with tcp reset"
    return f"""table ip {TABLE} {{
{maps}
    chain own_pods {{
    }}
    chain services {{
        {lookup} vmap @service_ips
        fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap @node_ports
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
    chain refuse {{
        {lookup} @refused {reset}
        {lookup} @refused reject with icmp port-unreachable
        ip daddr {network.services} reject with icmp host-unreachable
    }}
    chain input {{
        type filter hook input priority filter; policy accept;
        fib daddr type local meta l4proto . th dport @refused_node_ports {reset}
        fib daddr type local meta l4proto . th dport @refused_node_ports reject with icmp port-unreachable
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
