"""The eviction subresource of pods: a deletion that asks the pod's disruption budget first.

The budget's share is taken with a write of its status, so two evictions never spend the same one.

Counterpart: kubernetes pkg/registry/core/pod/storage/eviction.go.
"""

from __future__ import annotations

from typing import Any

from apiserver.registry_deleting import Deleter, check_delete_options, check_preconditions
from apiserver.registry_errors import translated
from apiserver.registry_objects import ApiObject
from apiserver.registry_options import check_write_options, settle_namespace
from apiserver.registry_reading import Reader
from apiserver.registry_writing import Outcome, Writer
from apiserver.rules import eviction as rules
from apiserver.watchcache import WatchCache
from podyard.api import errors, resources
from podyard.api.types import DeleteOptions, Pod, Status, copy_of, meta_v1, policy_v1
from podyard.base import clock, ids

# Source: EvictionsRetry.
_TRIES = 20
_PAUSE_S = 0.5
_JITTER = 0.1


class Evictor:
    """Evicts pods."""

    def __init__(self, reader: Reader, writer: Writer, deleter: Deleter, cache: WatchCache) -> None:
        self._reader = reader
        self._writer = writer
        self._deleter = deleter
        self._cache = cache
        self._pods = resources.by_message(Pod)
        self._budgets = resources.by_message(policy_v1.PodDisruptionBudget)

    async def evict(
        self, namespace: str, name: str, eviction: policy_v1.Eviction, options: meta_v1.CreateOptions
    ) -> Status:
        """Deletes a pod if its budget allows that now.

        Returns:
            Success.

        Raises:
            ApiError: NotFound, Conflict of a precondition, TooManyRequests by the budget, a 500 for
                several budgets.
        """
        check_write_options(options)
        eviction = copy_of(eviction)
        settle_namespace(self._pods, namespace, eviction)
        if eviction.metadata.name != name:
            raise errors.BadRequest("name in URL does not match name in Eviction object")
        asked = rules.delete_options(eviction, options)
        check_delete_options(asked)
        pod = await self._delete_if_free(namespace, name, asked)
        if pod is not None:
            await self._delete_within_budget(pod, asked)
        return Status(status="Success", code=201)

    async def _delete_if_free(self, namespace: str, name: str, asked: DeleteOptions) -> Pod | None:
        """Deletes a pod that no budget protects; else answers it."""
        for attempt in range(_TRIES):
            pod: Pod = (await self._reader.get(self._pods, namespace, name)).message
            if not rules.is_free(pod):
                return pod
            wanted = asked if rules.is_over(pod) else _as_seen(asked, pod)
            try:
                await self._mark_and_delete(pod, wanted)
                return None
            except errors.Conflict:
                # It was scheduled or became ready meanwhile, perhaps: look again.
                if asked.preconditions.HasField("resourceVersion") or attempt == _TRIES - 1:
                    raise
            await clock.sleep(_PAUSE_S * (1 + _JITTER * ids.jitter()))
        raise AssertionError("unreachable")

    async def _delete_within_budget(self, pod: Pod, asked: DeleteOptions) -> None:
        with translated():
            await self._cache.fresh()
        row = self._budgets
        listing = self._cache.select(row.storage_prefix, row.prefix(pod.metadata.namespace))
        candidates: list[Any] = [item.message for item in listing.objects]
        budget = rules.budget_of(pod, candidates)
        if budget is None:
            await self._mark_and_delete(pod, asked)
        elif rules.costs_nothing(pod, budget):
            try:
                await self._mark_and_delete(pod, _as_seen(asked, pod))
            except errors.Conflict:
                # It may be healthy now, and then it costs.
                if asked.preconditions.HasField("resourceVersion"):
                    raise
                raise rules.still_processed(budget.metadata.name) from None
        else:
            await self._spend(budget, pod.metadata.name, dry_run=bool(asked.dryRun))
            await self._mark_and_delete(pod, asked)

    async def _spend(self, budget: policy_v1.PodDisruptionBudget, pod_name: str, *, dry_run: bool) -> None:
        row, metadata = self._budgets, budget.metadata

        def decide(state: ApiObject | None) -> Outcome:
            if state is None:
                raise errors.NotFound.of(row.plural, metadata.name, row.group)
            new = copy_of(state.message)
            rules.spend(new, pod_name, clock.now_s())
            return self._writer.updated(row, state, new, "status")

        key = row.key(metadata.namespace, metadata.name)
        await self._writer.write(row, key, decide, dry_run=dry_run)

    async def _mark_and_delete(self, pod: Pod, wanted: DeleteOptions) -> None:
        """Deletes the pod; before that, it says why.

        Raises:
            ApiError: NotFound, Conflict of a precondition.
        """
        row, namespace, name = self._pods, pod.metadata.namespace, pod.metadata.name

        def decide(state: ApiObject | None) -> Outcome:
            if state is None:
                raise errors.NotFound.of(row.plural, name)
            new = copy_of(state.message)
            # Upstream names the kind here, not the resource.
            check_preconditions(row.kind, row.group, new.metadata, wanted)
            rules.mark(new, clock.now_s())
            return self._writer.updated(row, state, new, "status")

        if not wanted.dryRun:
            written = await self._writer.write(row, row.key(namespace, name), decide)
            if wanted.preconditions.HasField("resourceVersion"):
                wanted = _of_version(wanted, written.object.message)
        await self._deleter.delete(row, namespace, name, wanted)


def _as_seen(options: DeleteOptions, pod: Pod) -> DeleteOptions:
    """The options, for this very version of the pod unless they name one themselves."""
    return options if options.preconditions.HasField("resourceVersion") else _of_version(options, pod)


def _of_version(options: DeleteOptions, pod: Pod) -> DeleteOptions:
    wanted = copy_of(options)
    wanted.preconditions.resourceVersion = pod.metadata.resourceVersion
    return wanted
