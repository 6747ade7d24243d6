"""The proxy's shell: watches nodes, asks the model, applies the difference.

It also looks after every change of the node's links and addresses, and every half minute: a
reconnected network drops routes, and someone may flush the rules.
"""

from __future__ import annotations

import asyncio

from pyroute2 import AsyncIPRoute
from pyroute2.netlink.rtnl import RTMGRP_IPV4_IFADDR, RTMGRP_LINK

from podyard.api.types import Node
from podyard.base import clock, ids, log
from podyard.base.backoff import Backoff
from podyard.base.run import Background
from podyard.client.client import Client
from podyard.client.informer import Informer
from proxy import apply
from proxy.apply import ApplyError
from proxy.model import Desired, Network, desired, route_changes
from proxy.ruleset import render

_LOGGER = log.get_logger("proxy")
_RESYNC_S = 30.0
_BACKOFF = Backoff(base_s=0.2, cap_s=10.0)
# Changes that come together are applied together.
_SETTLE_S = 0.05


class Proxy:
    """Keeps one node's routes and rules.

    Args:
        node_name: of this node.
        network: the cluster's ranges.
    """

    def __init__(self, client: Client, node_name: str, network: Network) -> None:
        self.nodes: Informer[Node] = Informer(client, Node)
        self.synced_at_s = 0.0
        self._node_name = node_name
        self._network = network
        self._applied: Desired | None = None
        self._dirty = asyncio.Event()
        self.nodes.on_change(self._on_node)

    async def run(self) -> None:
        """Works for ever; ends by cancellation only. Rules and routes stay."""
        async with Background() as background:
            background.start(self.nodes.run(), name="nodes")
            background.start(self._follow_links(), name="links")
            await self.nodes.synced.wait()
            await self._sync_for_ever()

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        # Heartbeats change nodes all the time; only what routes are made of matters.
        if old is not None and new is not None and _matters(old) == _matters(new):
            return
        self._dirty.set()

    async def _sync_for_ever(self) -> None:
        failures = 0
        while True:
            self._dirty.clear()
            try:
                await self._sync()
                failures = 0
                delay_s = _RESYNC_S * (1 + 0.2 * ids.jitter())
            except (ApplyError, OSError, TimeoutError) as error:
                _LOGGER.warning("not applied", error=str(error))
                delay_s = _BACKOFF.delay_s(failures, ids.jitter())
                failures += 1
            try:
                async with clock.real_timeout(delay_s):
                    await self._dirty.wait()
                await clock.real_sleep(_SETTLE_S)
            except TimeoutError:
                pass

    async def _sync(self) -> None:
        wanted = desired(self.nodes, self._node_name)
        await asyncio.to_thread(apply.keep_unreachable, self._network.pods)
        if wanted != self._applied or not await apply.table_present():
            await apply.run_nft(render(wanted, self._network))
            if wanted != self._applied:
                _LOGGER.info("rules applied", routes=len(wanted.routes), own_range=wanted.own_range)
            self._applied = wanted
        present = await asyncio.to_thread(apply.present_routes)
        changes = route_changes(wanted, present)
        if changes.replace or changes.remove:
            await asyncio.to_thread(apply.apply_routes, changes)
        self.synced_at_s = clock.real_monotonic_s()

    async def _follow_links(self) -> None:
        failures = 0
        while True:
            try:
                async with AsyncIPRoute() as kernel:
                    await kernel.bind(groups=RTMGRP_LINK | RTMGRP_IPV4_IFADDR)
                    while True:
                        async for _ in kernel.get():
                            failures = 0
                        self._dirty.set()
            except OSError as error:
                _LOGGER.warning("link events broke", error=str(error))
            await clock.real_sleep(_BACKOFF.delay_s(failures, ids.jitter()))
            failures += 1


def _matters(node: Node) -> tuple[str, tuple[tuple[str, str], ...]]:
    return node.spec.podCIDR, tuple((entry.type, entry.address) for entry in node.status.addresses)
