"""The kubelet's shell: joins the API's pods, the runtime's pods and the clock to one worker a pod.

Three sources wake a worker: the watch on this node's pods, the runtime's event stream, and timers;
a full look at the runtime every ten seconds is the safety net for lost events. Pods that only the
runtime knows are leftovers, ended once the list of the node's pods is complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from typing import Any

from kubelet.endmessages import EndMessages
from kubelet.handlers import Handlers
from kubelet.images import ImagePuller
from kubelet.lookup import ObjectLookup
from kubelet.podbuild import ClusterNetwork, HostFacts
from kubelet.podspec import full_name
from kubelet.podstatus import NodeFacts
from kubelet.runtime.base import ObservedPod, Runtime, RuntimeFailure
from kubelet.statuses import StatusWriter
from kubelet.surroundings import Surroundings
from kubelet.traces import Traces
from kubelet.volumes import Volumes
from kubelet.worker import PodWorker
from podyard.api import errors
from podyard.api.errors import ApiError
from podyard.api.types import Key, Pod, Service
from podyard.base import clock, ids, log
from podyard.base.backoff import Backoff
from podyard.base.run import Background
from podyard.client.client import Client
from podyard.client.informer import Informer
from podyard.client.recorder import Recorder

_LOGGER = log.get_logger("kubelet")
_RELIST_S = 10.0
_STREAM_BACKOFF = Backoff(base_s=0.1, cap_s=5.0)
# More starts at once gain nothing on the machines this runs on.
_PARALLEL_STARTS = 3
_SERVICES_TIMEOUT_S = 10.0


class Kubelet:
    """Runs the pods of one node.

    Args:
        node_name: whose pods.
        volumes: where pods' volumes are.
        handlers: carries out probes and lifecycle hooks.
        traces: removes what a pod leaves on the node, its logs and cgroups.
        messages: termination messages; None where containers write no files.
    """

    def __init__(
        self,
        node_name: str,
        client: Client,
        runtime: Runtime,
        recorder: Recorder,
        *,
        volumes: Volumes,
        network: ClusterNetwork,
        handlers: Handlers,
        traces: Traces | None = None,
        messages: EndMessages | None = None,
    ) -> None:
        self.node_name = node_name
        self.host = HostFacts(node_name, "", 0, 0)
        self.network_problem: str | None = "the runtime has not been asked yet"
        self.pods: Informer[Pod] = Informer(client, Pod, field_selector=f"spec.nodeName={node_name}")
        self._services: Informer[Service] = Informer(client, Service)
        self._client = client
        self._runtime = runtime
        self._recorder = recorder
        self._volumes = volumes
        self._traces = traces
        self._workers: dict[str, PodWorker] = {}
        self._statuses = StatusWriter(client)
        self._lookup = ObjectLookup(client)
        self._around = Surroundings(
            runtime=runtime,
            images=ImagePuller(runtime),
            volumes=volumes,
            starts=asyncio.Semaphore(_PARALLEL_STARTS),
            lookup=self._lookup.get,
            services=self._known_services,
            statuses=self._statuses,
            confirm=self._confirm,
            record=self._record,
            tidy=self._tidy,
            host=lambda: self.host,
            node=lambda: NodeFacts((self.host.host_ip,) if self.host.host_ip else ()),
            network=network,
            network_ready=lambda: self.network_problem,
            handlers=handlers,
            messages=messages,
        )
        self._pending: list[tuple[Pod | None, Pod | None]] = []
        self._changed = asyncio.Event()
        self.pods.on_change(self._on_pod)

    # What the kubelet's server asks.

    def find(self, namespace: str, name: str) -> Pod | None:
        return self.pods.get(Key(namespace, name))

    def all(self) -> list[Pod]:
        return list(self.pods)

    @property
    def runtime(self) -> Runtime:
        return self._runtime

    async def observe(self, uid: str) -> ObservedPod:
        return await self._runtime.pod(uid)

    def container_runs(self, uid: str, container_id: str) -> bool:
        worker = self._workers.get(uid)
        if worker is None:
            return False
        return any(c.id == container_id and c.state == "running" for c in worker.observed.containers)

    # Running.

    async def run(self) -> None:
        """Works for ever; ends by cancellation. Pods run on: a kubelet that ends kills nothing."""
        async with Background() as background:
            background.start(self.pods.run(), name="pods")
            background.start(self._services.run(), name="services")
            background.start(self._dispatch(background), name="dispatch")
            background.start(self._follow_runtime(), name="runtime events")
            await self._relist_for_ever(background)

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        self._pending.append((old, new))
        self._changed.set()

    async def _dispatch(self, background: Background) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            self._apply_pending(background)

    def _apply_pending(self, background: Background) -> None:
        pending, self._pending = self._pending, []
        for old, new in pending:
            self._apply(background, old, new)

    def _apply(self, background: Background, old: Pod | None, new: Pod | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            worker = self._workers.get(old.metadata.uid)
            if worker is not None:
                worker.forget_object()
        if new is None:
            return
        uid = new.metadata.uid
        worker = self._workers.get(uid)
        if worker is None:
            self._start_worker(background, uid, new)
        else:
            worker.update(new)

    def _start_worker(self, background: Background, uid: str, pod: Pod | None) -> None:
        worker = PodWorker(uid, pod, self._around)
        self._workers[uid] = worker
        background.start(self._run_worker(worker), name=f"pod {full_name(pod) if pod else uid}")

    async def _run_worker(self, worker: PodWorker) -> None:
        failures = 0
        while True:
            try:
                await worker.run()
                break
            except Exception as error:  # pod worker: one pod's failure must not stop the others
                failures += 1
                _LOGGER.error("pod worker failed", uid=worker.uid, error=repr(error), exc_info=error)
                await clock.sleep(_STREAM_BACKOFF.delay_s(failures, ids.jitter()))
        if self._workers.get(worker.uid) is worker:
            del self._workers[worker.uid]
        self._statuses.forget(worker.uid)

    async def _follow_runtime(self) -> None:
        failures = 0
        while True:
            try:
                events: AsyncIterator[str] = self._runtime.events()
                async for uid in events:
                    failures = 0
                    worker = self._workers.get(uid)
                    if worker is not None:
                        worker.wake()
            except RuntimeFailure as failure:
                _LOGGER.debug("runtime events broke", error=failure.message)
            await clock.real_sleep(_STREAM_BACKOFF.delay_s(failures, ids.jitter()))
            failures += 1
            # What happened while nobody listened shows at the next look.
            for worker in list(self._workers.values()):
                worker.wake()

    async def _relist_for_ever(self, background: Background) -> None:
        await self.pods.synced.wait()
        seen: dict[str, tuple[Any, ...]] = {}
        while True:
            try:
                observed = await self._runtime.pods()
                # First what the watch has brought: a pod without a worker yet is no leftover.
                self._apply_pending(background)
                seen = await self._compare(background, observed, seen)
                await self._runtime.sweep()
            except RuntimeFailure as failure:
                _LOGGER.warning("runtime can't be listed", error=failure.message)
            await clock.real_sleep(_RELIST_S * (1 + 0.1 * ids.jitter()))

    async def _compare(
        self, background: Background, observed: list[ObservedPod], seen: dict[str, tuple[Any, ...]]
    ) -> dict[str, tuple[Any, ...]]:
        now: dict[str, tuple[Any, ...]] = {}
        for pod in observed:
            now[pod.uid] = (
                tuple((s.id, s.ready) for s in pod.sandboxes),
                tuple((c.id, c.state) for c in pod.containers),
            )
            worker = self._workers.get(pod.uid)
            if worker is None and pod.uid:
                _LOGGER.info("removing leftovers", uid=pod.uid, name=pod.name, namespace=pod.namespace)
                self._start_worker(background, pod.uid, None)
            elif worker is not None and now[pod.uid] != seen.get(pod.uid):
                worker.wake()
        for uid in seen.keys() - now.keys():
            worker = self._workers.get(uid)
            if worker is not None:
                worker.wake()
        for uid in self._volumes.known_pods():
            if uid not in self._workers and uid not in now:
                await self._volumes.tear_down(uid)
        if self._traces is not None:
            await self._sweep(self._traces, now.keys())
        return now

    async def _sweep(self, traces: Traces, running: Collection[str]) -> None:
        """Removes what pods left whose kubelet was killed between their end and its removal."""
        for uid in await asyncio.to_thread(traces.known_pods):
            # Asked only now: a pod's worker comes before its first trace.
            if uid not in running and uid not in self._workers:
                await asyncio.to_thread(traces.remove, ObservedPod(uid), None)

    # What workers ask.

    async def _known_services(self) -> Iterable[Service]:
        """Raises `Unavailable` before they have been read: a container without them could not be mended."""
        try:
            async with clock.real_timeout(_SERVICES_TIMEOUT_S):
                await self._services.synced.wait()
        except TimeoutError:
            raise errors.Unavailable(
                "services have not yet been read at least once, cannot construct envvars"
            ) from None
        return self._services

    async def _tidy(self, observed: ObservedPod, pod: Pod | None) -> None:
        if self._traces is not None:
            await asyncio.to_thread(self._traces.remove, observed, pod)

    async def _confirm(self, pod: Pod) -> None:
        """Removes the object of a pod that has ended here."""
        try:
            await self._client.delete(
                Pod, pod.metadata.name, pod.metadata.namespace, grace_s=0, uid=pod.metadata.uid
            )
        except (errors.NotFound, errors.Conflict):
            pass  # gone, or another pod has the name now
        except ApiError as error:
            _LOGGER.debug("object not removed yet", pod=full_name(pod), error=error.message)

    def _record(self, pod: Pod, type_: str, reason: str, message: str, path: str) -> None:
        self._recorder.event(pod, type_, reason, message, field_path=path)
