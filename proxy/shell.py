"""The proxy's shell: watches nodes, Services and slices, asks the model, applies the difference.

It also looks after every change of the node's links and addresses, and every half minute: a
reconnected network drops routes, and someone may flush the rules.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pyroute2 import AsyncIPRoute
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import RTMGRP_IPV4_IFADDR, RTMGRP_LINK

from podyard.api.types import EndpointSlice, Node, Service
from podyard.base import clock, ids, log
from podyard.base.backoff import Backoff
from podyard.base.run import Background
from podyard.client.client import Client
from podyard.client.informer import Informer
from proxy import apply, flows
from proxy.apply import ApplyError
from proxy.model import ZONE, Balanced, Desired, Network, desired, route_changes
from proxy.ruleset import Rules, changes, memory_of, rules_of, whole
from proxy.zone import Zone, build

_LOGGER = log.get_logger("proxy")
_RESYNC_S = 30.0
_BACKOFF = Backoff(base_s=0.2, cap_s=10.0)
# Changes that come together are applied together.
_SETTLE_S = 0.05
# How the CNI plugin names a pod's link on the node.
_POD_LINKS = "veth"


class Proxy:
    """Keeps one node's routes and rules.

    Args:
        node_name: of this node.
        network: the cluster's ranges.
        domain: of the cluster's names.
    """

    def __init__(
        self, client: Client, node_name: str, network: Network, *, domain: str = "cluster.local"
    ) -> None:
        self.nodes: Informer[Node] = Informer(client, Node)
        self.services: Informer[Service] = Informer(client, Service)
        self.slices: Informer[EndpointSlice] = Informer(client, EndpointSlice)
        # Until all names are known, none can be said to be absent.
        self.zone = Zone(domain, complete=False)
        self.named = asyncio.Event()
        self.synced_at_s = 0.0
        self._node_name = node_name
        self._network = network
        self._desired: Desired | None = None
        self._applied: Rules | None = None
        self._flows_of: tuple[Balanced, ...] | None = None
        self._dirty = asyncio.Event()
        self.nodes.on_change(self._on_node)
        self.services.on_change(self._on_change)
        self.slices.on_change(self._on_change)

    async def run(self) -> None:
        """Works for ever; ends by cancellation only. Rules and routes stay."""
        informers = (self.nodes, self.services, self.slices)
        async with Background() as background:
            for informer in informers:
                background.start(informer.run(), name=f"informer {informer.kind.DESCRIPTOR.name}")
            background.start(self._follow_links(), name="links")
            for informer in informers:
                await informer.synced.wait()
            await self._sync_for_ever()

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        # Heartbeats change nodes all the time; only what routes are made of matters.
        if old is not None and new is not None and _matters(old) == _matters(new):
            return
        self._dirty.set()

    def _on_change(self, old: Any, new: Any) -> None:
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
                # What the kernel has now is not certain: the next transaction replaces all of it.
                self._applied = None
                delay_s = _BACKOFF.delay_s(failures, ids.jitter())
                failures += 1
            try:
                async with clock.real_timeout(delay_s):
                    await self._dirty.wait()
                await clock.real_sleep(_SETTLE_S)
            except TimeoutError:
                pass

    async def _sync(self) -> None:
        # Names first: they need no kernel, and clients ask for them before they connect.
        self.zone = build(self.services, self.slices, self.zone.domain, self._network)
        self.named.set()
        wanted = desired(self.nodes, self._node_name, self.services, self.slices, self._network)
        present = self._applied is not None and await apply.rules_present()
        if wanted != self._desired or not present:
            await self._apply_rules(wanted, whole_table=not present)
        await self._forget_flows(wanted)
        await asyncio.to_thread(apply.keep_unreachable, self._network.pods)
        await asyncio.to_thread(apply.hold_address, self._network.dns)
        routes = route_changes(wanted, await asyncio.to_thread(apply.present_routes))
        if routes.replace or routes.remove:
            await asyncio.to_thread(apply.apply_routes, routes)
        self.synced_at_s = clock.real_monotonic_s()

    async def _apply_rules(self, wanted: Desired, *, whole_table: bool) -> None:
        rules = rules_of(wanted, self._network)
        if whole_table or self._applied is None:
            text = whole(rules, self._network, memory_of(await apply.present_table()))
            _LOGGER.info("all rules anew", routes=len(wanted.routes), services=len(wanted.services))
        else:
            text = changes(self._applied, rules)
        if text:
            await apply.run_nft(text)
        self._applied, self._desired = rules, wanted

    async def _forget_flows(self, wanted: Desired) -> None:
        """Only after the rules: the client's next packet must find the new ones."""
        services = flows.udp(wanted.services)
        if services == self._flows_of:
            return
        try:
            own = await asyncio.to_thread(apply.own_addresses)
            for flow in flows.stale(await apply.present_flows(), services, own, self._network):
                await apply.forget(flow)
            self._flows_of = services
        except ApplyError as error:  # the rules are right all the same; the next look tries again
            _LOGGER.warning("flows not compared", error=str(error))

    async def _follow_links(self) -> None:
        failures = 0
        while True:
            try:
                async with AsyncIPRoute() as kernel:
                    await kernel.bind(groups=RTMGRP_LINK | RTMGRP_IPV4_IFADDR)
                    while True:
                        async for message in kernel.get():
                            failures = 0
                            if not is_of_a_pod(message):
                                self._dirty.set()
            except (OSError, NetlinkError) as error:
                _LOGGER.warning("link events broke", error=str(error))
            await clock.real_sleep(_BACKOFF.delay_s(failures, ids.jitter()))
            failures += 1


def is_of_a_pod(message: Any) -> bool:
    """Whether a link or address event is a pod's: each start makes many, and no route hangs on them."""
    name = message.get_attr("IFLA_IFNAME") or message.get_attr("IFA_LABEL") or ""
    return name.startswith(_POD_LINKS)


def _matters(node: Node) -> tuple[Any, ...]:
    addresses = tuple((entry.type, entry.address) for entry in node.status.addresses)
    return node.spec.podCIDR, node.metadata.labels.get(ZONE, ""), addresses
