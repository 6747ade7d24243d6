"""From a question and the cluster's zone to a DNS message. No sockets, no clock.

Called by the server for each question that its cache has no answer for. What is not ours it leaves to the
node's resolver, also the last step of a name that is another name of something outside.

Source: CoreDNS's kubernetes plugin; RFC 1035, RFC 2308 (how long nothing is remembered), RFC 6891.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdatatype
import dns.reversename
import dns.rrset

from proxy.zone import Answer, Srv, Zone

TTL_S = 5
# How long an answer over UDP may be: what the client takes, within these bounds.
PLAIN_UDP_BYTES = 512
MAX_UDP_BYTES = 4096
_MAX_ALIASES = 8


@dataclass(frozen=True, slots=True)
class Response:
    """An answer.

    Attributes:
        message: to send.
        pending: the name, outside the cluster, whose records complete it.
    """

    message: dns.message.Message
    pending: dns.name.Name | None = None


def udp_limit(query: dns.message.Message) -> int:
    """How many bytes the client takes over UDP."""
    if query.edns < 0:
        return PLAIN_UDP_BYTES
    return min(max(query.payload, PLAIN_UDP_BYTES), MAX_UDP_BYTES)


def respond(query: dns.message.Message, zone: Zone) -> Response | None:
    """The answer to a question of ours, None when it is someone else's."""
    if query.opcode() != dns.opcode.QUERY:
        return Response(_empty(query, dns.rcode.NOTIMP))
    if len(query.question) != 1:
        return Response(_empty(query, dns.rcode.FORMERR))
    question = query.question[0]
    name = question.name.to_text(omit_final_dot=True).lower()
    kind = dns.rdatatype.to_text(question.rdtype)
    if zone.covers(name):
        if not zone.complete:
            return Response(_empty(query, dns.rcode.SERVFAIL))
        return _named(query, zone, name, kind)
    address = _address_of(question.name) if kind == "PTR" else ""
    if not address or not (zone.owns(address) or zone.pointer(address).exists):
        return None
    if not zone.complete:
        return Response(_empty(query, dns.rcode.SERVFAIL))
    # Differs from upstream, which asks the node's resolver for the names of addresses that it does not know:
    # of the cluster's own ranges nobody else can know anything.
    message = _ours(query)
    _fill(message, question.name, zone.pointer(address), kind, zone)
    return Response(message)


def _address_of(name: dns.name.Name) -> str:
    """The IPv4 address that a reverse name stands for; empty for every other name."""
    if not name.is_subdomain(dns.reversename.ipv4_reverse_domain):
        return ""
    try:
        return dns.reversename.to_address(name)
    except dns.exception.DNSException:
        return ""


def _empty(query: dns.message.Message, code: dns.rcode.Rcode) -> dns.message.Message:
    message = dns.message.make_response(query)
    message.set_rcode(code)
    return message


def _ours(query: dns.message.Message) -> dns.message.Message:
    message = dns.message.make_response(query)
    message.flags |= dns.flags.AA | dns.flags.RA
    return message


def _named(query: dns.message.Message, zone: Zone, name: str, kind: str) -> Response:
    """Follows aliases to their end, or to the border of the zone."""
    message = _ours(query)
    owner = query.question[0].name
    for _ in range(_MAX_ALIASES):
        found = zone.lookup(name, kind)
        _fill(message, owner, found, kind, zone)
        if not found.cname or kind == "CNAME":
            return Response(message)
        name = found.records[0]
        owner = dns.name.from_text(name)
        if not zone.covers(name):
            return Response(message, pending=owner)
    return Response(_empty(query, dns.rcode.SERVFAIL))


def _fill(message: dns.message.Message, owner: dns.name.Name, found: Answer, kind: str, zone: Zone) -> None:
    if found.records:
        shown_kind = "CNAME" if found.cname else kind
        data = list(_data(found.records, shown_kind))
        message.answer.append(dns.rrset.from_text_list(owner, TTL_S, "IN", shown_kind, data))
        message.additional.extend(_targets(found.records, zone))
        return
    if not found.exists:
        message.set_rcode(dns.rcode.NXDOMAIN)
    # How long nothing may be remembered: as long as something.
    soa = f"ns.dns.{zone.domain}. hostmaster.{zone.domain}. 1 7200 1800 86400 {TTL_S}"
    message.authority.append(dns.rrset.from_text(f"{zone.domain}.", TTL_S, "IN", "SOA", soa))


def _data(records: Sequence[Any], kind: str) -> Iterator[str]:
    for record in records:
        if isinstance(record, Srv):
            # Equal shares of a hundred, at least one.
            yield f"0 {max(100 // len(records), 1)} {record.port} {record.target}."
        elif kind in ("CNAME", "PTR"):
            yield f"{record}."
        else:
            yield f'"{record}"' if kind == "TXT" else str(record)


def _targets(records: Sequence[Any], zone: Zone) -> Iterator[dns.rrset.RRset]:
    """Addresses of the names that SRV records lead to."""
    names = dict.fromkeys(record.target for record in records if isinstance(record, Srv))
    for name in names:
        addresses = zone.lookup(name, "A").records
        if addresses:
            yield dns.rrset.from_text_list(f"{name}.", TTL_S, "IN", "A", list(addresses))


def turns(message: dns.message.Message) -> int:
    """In how many orders the addresses of an answer may be shown."""
    return max((len(entry) for entry in message.answer if entry.rdtype == dns.rdatatype.A), default=1)


def turned(message: dns.message.Message, turn: int) -> dns.message.Message:
    """The same with another address first: clients take the first, and all must get their share."""
    for entry in message.answer:
        if entry.rdtype == dns.rdatatype.A and len(entry) > 1:
            records = list(entry)
            first = turn % len(records)
            entry.items.clear()
            for record in (*records[first:], *records[:first]):
                entry.add(record)
    return message


def cut(wire: bytes, limit: int) -> bytes:
    """A message with as many records as fit, marked so that the client asks again over TCP."""
    try:
        message = dns.message.from_wire(wire, ignore_trailing=True)
    except dns.exception.DNSException:
        return wire[:2] + bytes((wire[2] | 0x02, wire[3])) + b"\0" * 8
    message.flags |= dns.flags.TC
    message.additional.clear()
    message.authority.clear()
    entries = [(entry, list(entry)) for entry in message.answer]
    fits, too_many = -1, sum(len(records) for _, records in entries) + 1
    shown = b""
    while too_many - fits > 1:
        tried = (fits + too_many) // 2
        _show(message, entries, tried)
        made = message.to_wire(max_size=65535, want_shuffle=False)
        if len(made) <= limit:
            fits, shown = tried, made
        else:
            too_many = tried
    return shown


def _show(message: dns.message.Message, entries: list[tuple[dns.rrset.RRset, list[Any]]], count: int) -> None:
    """Puts the first `count` records into the answer."""
    message.answer.clear()
    for entry, records in entries:
        part = records[:count]
        count -= len(part)
        if part:
            shown = dns.rrset.RRset(entry.name, entry.rdclass, entry.rdtype)
            shown.update_ttl(entry.ttl)
            for record in part:
                shown.add(record)
            message.answer.append(shown)


def failure(query: bytes) -> bytes:
    """SERVFAIL to a question, of which only the header and the question itself are kept."""
    end = 12
    while end < len(query) and query[end]:
        end += query[end] + 1
    asked = query[12 : end + 5]
    return query[:2] + bytes((0x80 | query[2] & 0x79, 0x82)) + b"\0\1" + b"\0" * 6 + asked
