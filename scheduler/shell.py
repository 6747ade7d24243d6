"""The scheduler's shell: informers -> queue -> decide -> assume -> bind.

Deciding is one pod at a time over the cache; binding is not waited for by the next decision and
goes out in batches, so one message carries many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from podyard.api import errors
from podyard.api.errors import ApiError
from podyard.api.types import Namespace, Node, Pod, Service
from podyard.base import clock, ids, log, metrics
from podyard.base.run import Background
from podyard.client.client import Client
from podyard.client.informer import InformerSet
from podyard.client.recorder import Recorder
from scheduler.binding import Binder, Decided
from scheduler.cache import Cache
from scheduler.decide import Chosen, decide
from scheduler.framework import Event, Plugin, PodChange
from scheduler.marking import Marker
from scheduler.owners import OWNERS
from scheduler.pods import PodFacts
from scheduler.profile import DEFAULT
from scheduler.queue import SchedulingQueue, Waiting

_LOGGER = log.get_logger("scheduler")
# Decisions between two looks at the loop, so that watches and renewals stay in time.
_BURST = 32

_ATTEMPTS = metrics.counter("scheduler_schedule_attempts_total", "Attempts by result", ("result",))
_PENDING = metrics.gauge("scheduler_pending_pods", "Pending pods by queue", ("queue",))


class Scheduler:
    """Schedules pods of one scheduler name.

    Args:
        name: pods with this `spec.schedulerName`.
        profile: plugins in order.
    """

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        *,
        name: str = "default-scheduler",
        profile: Sequence[Plugin] = DEFAULT,
    ) -> None:
        self.informers = InformerSet(client)
        self._client = client
        self._recorder = recorder
        self._name = name
        self._profile = profile
        self._cache = Cache()
        self._queue = SchedulingQueue()
        self._wake = asyncio.Event()
        self._marker = Marker(client)
        self._binder = Binder(client, self._bound, self._wanted)
        self._start = 0
        self._moved_by = {event: _names(profile, event) for event in Event}
        self._hints = {plugin.name: plugin.helps for plugin in profile if plugin.helps is not None}
        # What decisions only look at, before the pods that are decided about.
        owners = self._cache.owners
        self._follow(Namespace, self._cache.set_namespace, self._namespace_gone)
        self._follow(Service, owners.set_service, owners.remove_service)
        for kind in OWNERS:
            self._follow(kind, owners.set_owner, owners.remove_owner)
        self.informers.of(Node).on_change(self._on_node)
        self.informers.of(Pod).on_change(self._on_pod)

    def _follow(self, kind: type[Any], put: Callable[[Any], None], drop: Callable[[Any], None]) -> None:
        def change(old: Any, new: Any) -> None:
            if new is None:
                drop(old)
            else:
                put(new)

        self.informers.of(kind).on_change(change)

    def _namespace_gone(self, namespace: Namespace) -> None:
        self._cache.remove_namespace(namespace.metadata.name)

    async def run(self) -> None:
        """Schedules for ever; ends by cancellation only. The informers must be running."""
        await self.informers.wait_synced()
        # It may have waited for its turn for days: what another bound last must count.
        await self.informers.refresh()
        async with Background() as background:
            background.start(self._binder.run(), name="binder")
            await self._schedule_for_ever(background)

    # What the watches say.

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            assert old is not None
            self._cache.remove_node(old.metadata.name)
            self._wake_for(Event.NODE_GONE)
            return
        self._cache.set_node(new)
        if old is None or _matters(old) != _matters(new):
            self._wake_for(Event.NODE)

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._gone(old)
            old = None
        if new is None:
            return
        if new.spec.nodeName:
            self._queue.remove(new.metadata.uid)
            if new.status.phase in ("Succeeded", "Failed"):
                self._gone(new)
            else:
                self._placed(old, new)
        elif self._is_ours(new):
            if not self._cache.is_assumed(new.metadata.uid):
                self._queue.add(new, clock.now_s())
                self._wake.set()
        else:
            self._queue.remove(new.metadata.uid)

    def _placed(self, old: Pod | None, new: Pod) -> None:
        """A pod that has a node came or changed."""
        uid = new.metadata.uid
        if old is not None and self._cache.facts(uid) is not None and _counts_alike(old, new):
            return
        was_there = old is not None and bool(old.spec.nodeName)
        before = self._cache.facts(uid) if was_there else None
        after = self._cache.set_pod(new)
        if before is not None and before.needs != after.needs:
            self._wake_for(Event.POD_GONE)  # a part of it, that is
        if before != after:
            self._wake_for_change(PodChange(before, after))

    def _is_ours(self, pod: Pod) -> bool:
        return (
            (pod.spec.schedulerName or "default-scheduler") == self._name
            and not pod.metadata.HasField("deletionTimestamp")
            and not pod.spec.schedulingGates
            and pod.status.phase not in ("Succeeded", "Failed")
        )

    def _gone(self, pod: Pod) -> None:
        self._queue.remove(pod.metadata.uid)
        self._freed(self._cache.remove_pod(pod.metadata.uid))

    def _freed(self, facts: PodFacts | None) -> None:
        """What a pod took of its node is free again."""
        if facts is not None:
            self._wake_for(Event.POD_GONE)
            self._wake_for_change(PodChange(facts, None))

    def _wake_for(self, event: Event) -> None:
        self._queue.wake(self._moved_by[event], clock.now_s())
        self._wake.set()

    def _wake_for_change(self, change: PodChange) -> None:
        def helped(waiting: Waiting) -> bool:
            return any(
                self._hints[name](waiting.subject, change, self._cache)
                for name in sorted(waiting.failed)
                if name in self._hints
            )

        self._queue.wake(self._hints, clock.now_s(), helped)
        self._wake.set()

    # Deciding.

    async def _schedule_for_ever(self, background: Background) -> None:
        while True:
            self._wake.clear()
            now_s = clock.now_s()
            self._queue.advance(now_s)
            for _ in range(_BURST):
                waiting = self._queue.take(clock.now_s())
                if waiting is None:
                    break
                self._decide(background, waiting)
            for name, count in self._queue.counts().items():
                _PENDING.labels(name).set(count)
            if len(self._queue):
                await clock.sleep(0)
                continue
            await clock.wait(self._wake, self._queue.next_due_s())

    def _decide(self, background: Background, waiting: Waiting) -> None:
        pod, subject = waiting.pod, waiting.subject
        result = decide(subject, self._cache, self._profile, start=self._start, tie=ids.jitter())
        if isinstance(result, Chosen):
            self._start = (self._start + result.examined) % max(len(self._cache), 1)
            self._cache.assume(pod.metadata.uid, subject.facts, result.node)
            self._marker.when_idle(pod.metadata.uid, lambda: self._binder.bind(pod, result.node))
            return
        _ATTEMPTS.labels("unschedulable").inc()
        self._queue.failed(pod.metadata.uid, clock.now_s(), result.failed)
        self._recorder.event(pod, "Warning", "FailedScheduling", result.message)
        self._marker.mark(background, pod, result.message)

    # Binding.

    def _wanted(self, decided: Decided) -> bool:
        uid = decided.pod.metadata.uid
        return self._cache.is_assumed(uid) and self._cache.get(decided.node) is not None

    def _bound(self, decided: Decided, problem: ApiError | None) -> None:
        pod, node = decided.pod, decided.node
        metadata = pod.metadata
        if problem is None:
            _ATTEMPTS.labels("scheduled").inc()
            self._queue.remove(metadata.uid)
            text = f"Successfully assigned {metadata.namespace}/{metadata.name} to {node}"
            self._recorder.event(pod, "Normal", "Scheduled", text)
            return
        _ATTEMPTS.labels("error").inc()
        # Its place is free again: what was refused meanwhile may fit now.
        self._freed(self._cache.forget(metadata.uid))
        if not isinstance(problem, (errors.NotFound, errors.Conflict)):
            _LOGGER.warning("bind failed", pod=metadata.name, node=node, error=problem.message)
            self._recorder.event(pod, "Warning", "FailedScheduling", f"binding rejected: {problem.message}")
        # Where it is gone or bound after all, the watch has taken it out or will.
        self._queue.failed(metadata.uid, clock.now_s(), frozenset(), error=True)
        self._wake.set()


def _matters(node: Node) -> tuple[bytes, ...]:
    """What of a node may make a pod schedulable."""
    spec = Node(spec=node.spec, metadata={"labels": dict(node.metadata.labels)})
    for name, value in node.status.allocatable.items():
        spec.status.allocatable[name].CopyFrom(value)
    return (spec.SerializeToString(deterministic=True),)


def _counts_alike(old: Pod, new: Pod) -> bool:
    """Whether two states of a pod are the same to the cache."""
    return (
        old.spec == new.spec
        and old.metadata.labels == new.metadata.labels
        and old.metadata.HasField("deletionTimestamp") == new.metadata.HasField("deletionTimestamp")
    )


def _names(profile: Sequence[Plugin], event: Event) -> frozenset[str]:
    """Plugins whose refusals an event may end; a new node helps when there was none."""
    named = {plugin.name for plugin in profile if event in plugin.events}
    return frozenset(named | {""}) if event is Event.NODE else frozenset(named)
