"""Carries out what the model wants: nft transactions, and routes over netlink."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from podyard.base import clock, log
from proxy import flows
from proxy.flows import Flow
from proxy.model import RouteChanges
from proxy.ruleset import TABLE

_LOGGER = log.get_logger("proxy")
_TIMEOUT_S = 10.0
# Routes of ours carry this protocol number, so that nobody else's are ever touched.
ROUTE_PROTOCOL = 196
_UNREACHABLE = "unreachable"


class ApplyError(Exception):
    """The kernel refused; the text is its own."""


async def run_nft(text: str) -> None:
    """Runs one transaction.

    Raises:
        ApplyError: nothing of it was applied.
    """
    code, _, problem = await _run("nft", "-f", "-", stdin=text.encode())
    if code:
        raise ApplyError(problem.decode(errors="replace").strip())


async def rules_present() -> bool:
    """Whether our rules are there: someone may have flushed them."""
    code, out, _ = await _run("nft", "list", "chain", "ip", TABLE, "services")
    return code == 0 and b"@service_ips" in out


async def present_table() -> dict[str, Any]:
    """Our table as nft's JSON says it; empty when there is none."""
    code, out, _ = await _run("nft", "-j", "list", "table", "ip", TABLE)
    found: dict[str, Any] = json.loads(out) if code == 0 else {}
    return found


async def _run(*argv: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with clock.real_timeout(_TIMEOUT_S):
            out, err = await process.communicate(stdin)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    return process.returncode or 0, out, err


async def present_flows() -> set[Flow]:
    """The UDP flows that the kernel remembers.

    Raises:
        ApplyError: the kernel could not be asked.
    """
    code, out, problem = await _run("conntrack", "-L", "-p", "udp", "-f", "ipv4")
    if code:
        raise ApplyError(problem.decode(errors="replace").strip())
    return flows.parsed(out.decode())


async def forget(flow: Flow) -> None:
    """Drops the kernel's memory of flows; none there is fine."""
    ends = ("--orig-dst", flow.address, "--orig-port-dst", str(flow.port), "--reply-src", flow.answered_by)
    code, _, problem = await _run("conntrack", "-D", "-p", "udp", "-f", "ipv4", *ends)
    # 1 means that nothing matched.
    if code not in (0, 1):
        _LOGGER.warning("flows not dropped", error=problem.decode(errors="replace").strip())


@contextmanager
def _kernel() -> Iterator[IPRoute]:
    try:
        with IPRoute() as kernel:
            yield kernel
    except (OSError, NetlinkError) as error:
        # Refusals of the kernel are no OSError: left alone, one would end the process.
        raise ApplyError(str(error)) from None


def present_routes() -> dict[str, str]:
    """Pod range -> next hop, of the routes that we own.

    Raises:
        ApplyError: the kernel could not be asked.
    """
    found = {}
    with _kernel() as kernel:
        for route in kernel.get_routes(family=2, proto=ROUTE_PROTOCOL):
            destination, gateway = route.get_attr("RTA_DST"), route.get_attr("RTA_GATEWAY")
            if destination and gateway:
                found[f"{destination}/{route['dst_len']}"] = gateway
    return found


def apply_routes(changes: RouteChanges) -> None:
    """Sets and removes routes.

    Raises:
        ApplyError: a route could not be set; the others were.
    """
    problems = []
    with _kernel() as kernel:
        for cidr in changes.remove:
            try:
                kernel.route("del", dst=cidr, proto=ROUTE_PROTOCOL)
            except (OSError, NetlinkError) as error:
                if getattr(error, "code", 0) == errno.ESRCH:
                    continue  # gone with its link
                problems.append(f"{cidr}: {error}")
        for cidr, gateway in changes.replace:
            try:
                kernel.route("replace", dst=cidr, gateway=gateway, proto=ROUTE_PROTOCOL)
            except (OSError, NetlinkError) as error:
                problems.append(f"{cidr} via {gateway}: {error}")
    if problems:
        raise ApplyError("; ".join(problems))


def hold_address(address: str) -> None:
    """Puts an address on the loopback: packets to it stay on this node.

    Raises:
        ApplyError: the kernel refused.
    """
    with _kernel() as kernel:
        index = kernel.link_lookup(ifname="lo")[0]
        # Even a replacement by the same is an event, which would wake the caller to do this again.
        if any(entry.get_attr("IFA_ADDRESS") == address for entry in kernel.get_addr(family=2, index=index)):
            return
        kernel.addr("replace", index=index, address=address, prefixlen=32)


def own_addresses() -> frozenset[str]:
    """Addresses of this node but for the loopback's own.

    Raises:
        ApplyError: the kernel could not be asked.
    """
    with _kernel() as kernel:
        found = {entry.get_attr("IFA_ADDRESS") for entry in kernel.get_addr(family=2)}
    return frozenset(address for address in found if address and not address.startswith("127."))


def keep_unreachable(cidr: str) -> None:
    """Makes the range unreachable where no better route exists: nothing leaves by the default one.

    Raises:
        ApplyError: the kernel refused.
    """
    with _kernel() as kernel:
        kernel.route("replace", dst=cidr, type=_UNREACHABLE)
