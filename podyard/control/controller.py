"""The one async shell of all controllers.

Pop a key, wait until the informers have seen this key's own last write, build a view, decide,
carry out. Because of that wait nothing is ever created twice, without upstream's "expectations".
Every reconcile gets an id that its log lines and events carry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, assert_never

import structlog

from podyard.api import errors
from podyard.api.errors import ApiError
from podyard.api.types import Key, Message
from podyard.base import clock, ids, log, metrics
from podyard.base.backoff import Backoff
from podyard.client.client import Client
from podyard.client.informer import Informer, InformerSet, key_of
from podyard.client.recorder import Recorder
from podyard.control.actions import (
    Action,
    Announced,
    Create,
    Delete,
    DeleteCollection,
    Emit,
    Outcome,
    Patch,
    RequeueAfter,
    Update,
)
from podyard.control.creating import Creator
from podyard.control.queue import WorkQueue
from podyard.control.spec import SINGLE, ControllerSpec
from podyard.control.view import View

# Upstream's item back-off of rate-limited queues: 5 ms doubling to 1000 s. Ours ends at 60 s:
# a learner who mends the cause should not wait a quarter of an hour.
_BACKOFF = Backoff(base_s=0.005, cap_s=60.0)
_BARRIER_TIMEOUT_S = 5.0
# Creates and deletes of one reconcile start one by one, then twice as many: a systematic error
# shows at the first, not after a thousand.
_SLOW_START = 1

_DEPTH = metrics.gauge("workqueue_depth", "Current depth of workqueue", ("name",))
_RECONCILES = metrics.counter("podyard_reconciles_total", "Reconciles by outcome", ("controller", "outcome"))
_DURATION = metrics.histogram("workqueue_work_duration_seconds", "Time to process an item", ("name",))


def namespace_index(obj: Any) -> tuple[str, ...]:
    return (obj.metadata.namespace,)


def owner_index(obj: Any) -> tuple[str, ...]:
    """The uid of the controller that owns an object."""
    return tuple(owner.uid for owner in obj.metadata.ownerReferences if owner.controller)


def _is_final(error: ApiError) -> bool:
    """Whether a failure is worth telling: neither mended by a retry nor the end of a whole namespace."""
    ending = any(cause.reason == errors.CAUSE_NAMESPACE_TERMINATING for cause in error.causes)
    return not error.retryable and not ending


class Controller:
    """Runs one controller.

    Args:
        spec: what to run.
        client: writes.
        informers: shared by the process; this controller's kinds are added to it.
        recorder: for events.
    """

    def __init__(
        self, spec: ControllerSpec, client: Client, informers: InformerSet, recorder: Recorder
    ) -> None:
        self.spec = spec
        self._client = client
        self._creator = Creator(client)
        self._recorder = recorder
        self._queue: WorkQueue[Key] = WorkQueue(_BACKOFF)
        self._wake = asyncio.Event()
        self._started_at_s = 0.0
        self._logger = log.get_logger(f"controller.{spec.name}")
        self._listers: dict[type[Message], Informer[Any]] = {}
        # The barrier: key -> what was done for it and has perhaps not been seen yet.
        self._unseen: dict[Key, Outcome] = {}
        for kind in spec.kinds:
            informer = informers.of(kind)
            informer.add_index("namespace", namespace_index)
            informer.add_index("owner", owner_index)
            for name, function in spec.indexes.get(kind, {}).items():
                informer.add_index(name, function)
            self._listers[kind] = informer
        for kind in spec.kinds if spec.period_s is None else ():
            self._listers[kind].on_change(self._enqueuer(kind))

    async def run(self) -> None:
        """Works for ever; ends by cancellation only."""
        for informer in self._listers.values():
            await informer.synced.wait()
        self._started_at_s = clock.now_s()
        if self.spec.single:
            self._queue.add(SINGLE)
        elif self.spec.own_keys:
            for obj in self._listers[self.spec.for_]:
                self._queue.add(key_of(obj))
        self._wake.set()
        async with asyncio.TaskGroup() as group:
            for number in range(self.spec.workers):
                group.create_task(self._worker(), name=f"{self.spec.name}-{number}")

    def _enqueuer(self, kind: type[Message]) -> Callable[[Any, Any], None]:
        keys_of = self._keys_function(kind)

        def on_change(old: Any, new: Any) -> None:
            for key in keys_of(old, new):
                self._queue.add(key)
            if len(self._queue):
                self._wake.set()

        return on_change

    def _keys_function(self, kind: type[Message]) -> Callable[[Any, Any], list[Key]]:
        spec = self.spec
        if spec.single:
            return lambda old, new: [SINGLE]
        main = kind is spec.for_ and spec.own_keys
        owned = kind in spec.owns
        mapped = spec.maps.get(kind)

        def keys(old: Any, new: Any) -> list[Key]:
            found: list[Key] = [key_of(new if new is not None else old)] if main else []
            if owned:
                for obj in (old, new):
                    found.extend(self._owner_keys(obj))
            if mapped is not None:
                found.extend(mapped(old, new, View(self._listers, clock.now_s())))
            return found

        return keys

    def _owner_keys(self, obj: Any) -> list[Key]:
        if obj is None:
            return []
        kind = self.spec.for_.DESCRIPTOR.name
        namespace = obj.metadata.namespace
        return [
            Key(namespace, owner.name)
            for owner in obj.metadata.ownerReferences
            if owner.controller and owner.kind == kind
        ]

    async def _worker(self) -> None:
        while True:
            key = await self._next()
            started_s = clock.real_monotonic_s()
            try:
                await self._reconcile(key)
            finally:
                self._queue.done(key)
                if len(self._queue):
                    self._wake.set()
                _DURATION.labels(self.spec.name).observe(clock.real_monotonic_s() - started_s)

    async def _next(self) -> Key:
        while True:
            self._queue.advance(clock.now_s())
            key = self._queue.take()
            if key is not None:
                _DEPTH.labels(self.spec.name).set(len(self._queue))
                if len(self._queue):
                    self._wake.set()
                return key
            self._wake.clear()
            await clock.wait(self._wake, self._queue.next_due_s())

    async def _reconcile(self, key: Key) -> None:
        structlog.contextvars.bind_contextvars(reconcile_id=ids.hex_id(8))
        outcome = "error"
        try:
            await self._barrier(key)
            view = View(self._listers, clock.now_s())
            view.started_at_s = self._started_at_s
            if self.spec.gather is not None:
                view.facts = await self.spec.gather(self._client, view, key)
            actions = self.spec.reconcile(view, key)
            result = await self._carry_out(key, actions)
            if result.conflict:
                outcome = "conflict"
                self._retry(key)
                return
            outcome = "done"
            self._queue.forget(key)
            after_s = [
                delay_s for delay_s in (result.requeue_after_s, self.spec.period_s) if delay_s is not None
            ]
            if after_s:
                self._queue.add_at(key, clock.now_s() + min(after_s))
                self._wake.set()
        except AssertionError:
            raise  # our own invariant is broken: this process must not go on
        except ApiError as error:
            self._failed(key, error)
        except Exception as error:  # work loop: one key's failure must not stop the others
            self._logger.error("reconcile failed", key=str(key), error=repr(error), exc_info=error)
            self._retry(key)
        finally:
            _RECONCILES.labels(self.spec.name, outcome).inc()

    def _failed(self, key: Key, error: ApiError) -> None:
        delay_s = self._retry(key)
        if error.retry_after_s > delay_s:
            self._queue.add_at(key, clock.now_s() + error.retry_after_s)
        if isinstance(error, errors.Conflict):
            return
        level = (
            self._logger.debug if error.retryable and self._queue.failures(key) < 4 else self._logger.warning
        )
        level("reconcile failed", key=str(key), error=error.message, retry_in_s=round(delay_s, 3))

    def _retry(self, key: Key) -> float:
        delay_s = self._queue.retry(key, clock.now_s(), ids.jitter())
        self._wake.set()
        return delay_s

    async def _barrier(self, key: Key) -> None:
        """Waits until this key's own last writes have come back through the watch."""
        unseen = self._unseen.pop(key, None)
        if unseen is None:
            return
        try:
            await self._settle(unseen)
            async with clock.timeout(_BARRIER_TIMEOUT_S):
                for kind, revision in unseen.written:
                    await self._listers[kind].wait_for(revision)
                for kind, gone, uid in unseen.deleted:
                    await self._listers[kind].wait_for_deletion(gone, uid)
        except ApiError:
            self._unseen[key] = unseen
            raise
        except TimeoutError:
            # The watch lags or is broken: go on with what is known only after a further delay.
            self._unseen[key] = unseen
            raise errors.Timeout.of(
                f"own write of {key} has not been seen for {_BARRIER_TIMEOUT_S:g} s"
            ) from None

    async def _settle(self, unseen: Outcome) -> None:
        """Finds out which uncertain creates did happen; those are waited for like any other write."""
        while unseen.uncertain:
            found: Any = await self._creator.find(unseen.uncertain[-1])
            unseen.uncertain.pop()
            if found is not None:
                self._note(found, unseen)

    async def _carry_out(self, key: Key, actions: list[Action]) -> Outcome:
        outcome = Outcome()
        try:
            await self._slowly([a for a in actions if isinstance(a, (Create, Delete))], outcome)
            for action in actions:
                match action:
                    case RequeueAfter(delay_s):
                        known = outcome.requeue_after_s
                        outcome.requeue_after_s = delay_s if known is None else min(known, delay_s)
                    case Emit():
                        self._event(action.about, action.type, action.reason, action.message)
                    case Update() | Patch() | DeleteCollection():
                        await self._write(action, outcome)
                    case Create() | Delete():
                        pass  # done above
                    case _:
                        assert_never(action)
        except (errors.Conflict, errors.AlreadyExists) as error:
            self._logger.debug("decided on an old view", key=str(key), error=error.message)
            outcome.conflict = True
        finally:
            if outcome.written or outcome.deleted or outcome.uncertain:
                self._unseen[key] = outcome
        return outcome

    async def _slowly(self, actions: list[Create | Delete], outcome: Outcome) -> None:
        size = _SLOW_START
        while actions:
            batch, actions = actions[:size], actions[size:]
            if len(batch) == 1:
                await self._write(batch[0], outcome)
            else:
                results = await asyncio.gather(
                    *(self._write(action, outcome) for action in batch), return_exceptions=True
                )
                failed = [result for result in results if isinstance(result, BaseException)]
                if failed:
                    raise failed[0]
            size *= 2

    async def _write(
        self, action: Create | Delete | Update | Patch | DeleteCollection, outcome: Outcome
    ) -> None:
        result: Any = None
        match action:
            case Create():
                result = await self._create(action, outcome)
            case Update(obj, subresource):
                result = await self._client.update(obj, subresource=subresource)
            case Patch():
                result = await self._patch(action)
            case Delete():
                await self._delete(action, outcome)
            case DeleteCollection(kind, namespace):
                await self._client.delete_collection(kind, namespace)
            case _:
                assert_never(action)
        reason = getattr(action, "reason", "")
        if reason:
            self._logger.info(reason, action=type(action).__name__.lower())
        if result is not None:
            self._note(result, outcome)

    def _note(self, written: Any, outcome: Outcome) -> None:
        if type(written) in self._listers:
            outcome.written.append((type(written), int(written.metadata.resourceVersion)))

    async def _create(self, action: Create, outcome: Outcome) -> Any:
        obj: Any = action.obj
        try:
            made: Any = await self._creator.create(obj, outcome.uncertain)
        except errors.AlreadyExists:
            raise
        except ApiError as error:
            self._announce(action.announced, obj.metadata.name, error)
            await self._write_refusal(action, error, outcome)
            raise
        self._announce(action.announced, made.metadata.name, None)
        return made

    async def _write_refusal(self, action: Create, error: ApiError, outcome: Outcome) -> None:
        if action.if_refused is None or not _is_final(error):
            return
        update = action.if_refused(error.message)
        if update is None:
            return
        try:
            await self._write(update, outcome)
        except ApiError as failed:
            # The refusal itself is the bigger trouble, and is tried again.
            self._logger.debug("refusal not written", error=failed.message)

    async def _patch(self, action: Patch) -> Any:
        try:
            return await self._client.patch(
                action.kind,
                action.key.name,
                action.key.namespace,
                body=action.body,
                patch_type=action.patch_type,
                subresource=action.subresource,
            )
        except errors.NotFound:
            self._logger.debug("gone already", kind=action.kind.DESCRIPTOR.name, key=str(action.key))
            return None

    async def _delete(self, action: Delete, outcome: Outcome) -> None:
        try:
            await self._client.delete(
                action.kind,
                action.key.name,
                action.key.namespace,
                grace_s=action.grace_s,
                uid=action.uid,
                resource_version=action.resource_version,
                propagation=action.propagation,
            )
        except errors.NotFound:
            return
        except ApiError as error:
            self._announce(action.announced, action.key.name, error)
            raise
        if action.kind in self._listers:
            outcome.deleted.append((action.kind, action.key, action.uid))
        self._announce(action.announced, action.key.name, None)

    def _announce(self, announced: Announced | None, name: str, error: ApiError | None) -> None:
        """Records what became of an action, if it is final."""
        if announced is None or (error is not None and not _is_final(error)):
            return
        if error is None:
            if not announced.reason:
                return
            self._event(announced.about, "Normal", announced.reason, announced.message.format(name=name))
            return
        text = announced.failed_message.format(name=name, error=error.message)
        self._event(announced.about, "Warning", announced.failed_reason, text)

    def _event(self, about: Message, type_: str, reason: str, message: str) -> None:
        self._recorder.event(about, type_, reason, message, component=self.spec.reporter)
