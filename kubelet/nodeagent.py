"""The loops that keep the node's own objects: registration, lease, status."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kubelet.node import (
    LEASE_NAMESPACE,
    LEASE_RENEW_S,
    STATUS_REPORT_S,
    Machine,
    labels_to_mend,
    new_node,
    node_lease,
    node_status,
    same_but_heartbeat,
)
from kubelet.podbuild import HostFacts
from kubelet.runtime.base import Runtime, RuntimeFailure, RuntimeStatus
from kubelet.shell import Kubelet
from kubelet.statuses import status_patch
from podyard.api import errors
from podyard.api.errors import ApiError
from podyard.api.types import Lease, Node, Taint
from podyard.base import clock, ids, log
from podyard.base.backoff import Backoff
from podyard.base.run import Background
from podyard.client.client import STRATEGIC_PATCH, Client
from podyard.client.informer import Informer
from podyard.client.recorder import Recorder

_LOGGER = log.get_logger("kubelet.node")
_BACKOFF = Backoff(base_s=0.2, cap_s=7.0)
_STATUS_PERIOD_S = 10.0
# A cluster that comes up is being waited for: until the node is ready it looks more often, but less
# and less.
_UNREADY_BACKOFF = Backoff(base_s=0.3, cap_s=5.0)


class NodeAgent:
    """Keeps one node's objects current.

    Args:
        address: returns the node's address on the cluster's network.
        port: of the kubelet's server.
        labels: of the node besides its own.
        taints: that it registers with.
    """

    def __init__(
        self,
        kubelet: Kubelet,
        client: Client,
        runtime: Runtime,
        recorder: Recorder,
        machine: Machine,
        *,
        address: str,
        port: int,
        labels: dict[str, str],
        taints: Sequence[Taint] = (),
    ) -> None:
        self._kubelet = kubelet
        self._client = client
        self._runtime = runtime
        self._recorder = recorder
        self._machine = machine
        self._address = address
        self._port = port
        self._labels = labels
        self._taints = taints
        self._lease: Lease | None = None
        self._reported_at_s = 0.0
        self._ready = False
        self._cidr = ""
        name = kubelet.node_name
        self._nodes: Informer[Node] = Informer(client, Node, field_selector=f"metadata.name={name}")
        self._range_changed = asyncio.Event()
        self._nodes.on_change(self._on_node)
        kubelet.host = HostFacts(name, address, machine.memory_bytes, machine.cpus * 1000)

    async def run(self) -> None:
        """Works for ever; ends by cancellation only."""
        node = await self._register()
        async with Background() as background:
            background.start(self._nodes.run(), name="own node")
            background.start(self._renew_for_ever(node), name="lease")
            await self._report_for_ever(node)

    async def _register(self) -> Node:
        wanted = new_node(self._kubelet.node_name, self._machine, self._labels, self._taints)
        failures = 0
        while True:
            try:
                try:
                    node = await self._client.create(wanted)
                    self._recorder.event(node, "Normal", "Starting", "Starting kubelet.")
                    return node
                except errors.AlreadyExists:
                    return await self._adopt(wanted)
            except ApiError as error:
                _LOGGER.log(30 if failures > 10 else 20, "not registered yet", error=error.message)
            await clock.real_sleep(_BACKOFF.delay_s(failures, ids.jitter()))
            failures += 1

    async def _adopt(self, wanted: Node) -> Node:
        """The node exists: its default labels are set right, everything else is kept."""
        node = await self._client.get(Node, wanted.metadata.name)
        labels = labels_to_mend(wanted, node)
        if labels:
            node = await self._client.patch(Node, wanted.metadata.name, body={"metadata": {"labels": labels}})
        self._recorder.event(node, "Normal", "Starting", "Starting kubelet.")
        return node

    async def _renew_for_ever(self, node: Node) -> None:
        failures = 0
        while True:
            try:
                await self._renew(node)
                failures = 0
            except ApiError as error:
                failures += 1
                self._lease = None
                _LOGGER.warning("lease not renewed", error=error.message, failures=failures)
            delay_s = LEASE_RENEW_S if not failures else _BACKOFF.delay_s(failures - 1, ids.jitter())
            await clock.sleep(delay_s * (1 + 0.04 * ids.jitter()))

    async def _renew(self, node: Node) -> None:
        name = node.metadata.name
        if self._lease is None:
            try:
                self._lease = await self._client.get(Lease, name, LEASE_NAMESPACE)
            except errors.NotFound:
                self._lease = await self._client.create(node_lease(node, clock.now_s()))
                return
        self._lease = await self._client.update(node_lease(node, clock.now_s(), self._lease))

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is not None and new.spec.podCIDR != self._cidr:
            self._range_changed.set()

    async def _report_for_ever(self, node: Node) -> None:
        failures = unready = 0
        name = node.metadata.name
        while True:
            present = next(iter(self._nodes), node)
            try:
                node = await self._report(present)
                failures = 0
            except errors.NotFound:
                _LOGGER.warning("node object is gone, registering again", node=name)
                node = await self._register()
                self._lease = None
            except ApiError as error:
                failures += 1
                _LOGGER.warning("status not written", error=error.message)
            unready = 0 if self._ready else unready + 1
            period_s = _STATUS_PERIOD_S if self._ready else _UNREADY_BACKOFF.delay_s(unready - 1)
            if failures:
                period_s = _BACKOFF.delay_s(failures - 1, ids.jitter())
            try:
                async with clock.timeout(period_s):
                    await self._range_changed.wait()
                self._range_changed.clear()
                unready = 0  # its pods' network comes up now
            except TimeoutError:
                pass

    async def _report(self, node: Node) -> Node:
        if node.spec.podCIDR and node.spec.podCIDR != self._cidr:
            try:
                await self._runtime.set_pod_cidr(node.spec.podCIDR)
                self._cidr = node.spec.podCIDR
            except (RuntimeFailure, OSError) as error:
                _LOGGER.warning("pod range not set", cidr=node.spec.podCIDR, error=str(error))
        try:
            runtime = await self._runtime.status()
            images = await self._runtime.images() if runtime.ready else []
        except RuntimeFailure as failure:
            runtime, images = RuntimeStatus(False, False, "RuntimeDown", failure.message), []
        self._kubelet.network_problem = None if runtime.network_ready else runtime.message or runtime.reason
        now_s = clock.now_s()
        status = node_status(
            node, self._machine, runtime, images, address=self._address, port=self._port, now_s=now_s
        )
        self._announce(node, runtime.ready and runtime.network_ready)
        due = now_s - self._reported_at_s >= STATUS_REPORT_S
        if not due and same_but_heartbeat(status, node.status):
            return node
        # Others write to the node all the time, its status too: only what differs is sent.
        updated = await self._client.patch(
            Node,
            node.metadata.name,
            body={"metadata": {"uid": node.metadata.uid}, "status": status_patch(node.status, status) or {}},
            patch_type=STRATEGIC_PATCH,
            subresource="status",
        )
        self._reported_at_s = now_s
        return updated

    def _announce(self, node: Node, ready: bool) -> None:
        if ready != self._ready:
            self._ready = ready
            reason = "NodeReady" if ready else "NodeNotReady"
            name = node.metadata.name
            self._recorder.event(node, "Normal", reason, f"Node {name} status is now: {reason}")


def uplink() -> tuple[str, int]:
    """Address and MTU of the interface with the default route.

    Found by the route, never by name: a reconnected network renames it. Blocks; call it in a thread.

    Raises:
        OSError: there is no such route.
    """
    from pyroute2 import IPRoute

    with IPRoute() as kernel:
        for route in kernel.get_default_routes(family=2):
            index = route.get_attr("RTA_OIF")
            if index is None:
                continue
            mtu = int(next(iter(kernel.get_links(index))).get_attr("IFLA_MTU"))
            for entry in kernel.get_addr(family=2, index=index):
                return str(entry.get_attr("IFA_LOCAL") or entry.get_attr("IFA_ADDRESS")), mtu
    raise OSError("this machine has no default route with an address")
