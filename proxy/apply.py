"""Carries out what the model wants: nft transactions, and routes over netlink."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from contextlib import contextmanager

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from podyard.base import clock, log
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


async def table_present() -> bool:
    """Whether our table is there: someone may have flushed the rules."""
    code, _, _ = await _run("nft", "list", "table", "ip", TABLE)
    return code == 0


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


async def forget_flows(address: str, backend: str) -> None:
    """Drops the kernel's memory of UDP flows to a backend that is gone; none there is fine."""
    code, _, problem = await _run("conntrack", "-D", "-p", "udp", "--orig-dst", address, "--dst-nat", backend)
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


def keep_unreachable(cidr: str) -> None:
    """Makes the range unreachable where no better route exists: nothing leaves by the default one.

    Raises:
        ApplyError: the kernel refused.
    """
    with _kernel() as kernel:
        kernel.route("replace", dst=cidr, type=_UNREACHABLE)
