"""The reading verbs of every row: get, list and watch, from the watch cache.

Counterpart: apiserver storage/cacher (delegation to etcd and its exceptions), endpoints/handlers/get.go.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

from apiserver.longrunning import scope_of, watching
from apiserver.registry_errors import api_error, translated
from apiserver.registry_objects import ApiObject, Item
from apiserver.registry_options import (
    EXACT,
    ContinueToken,
    Selection,
    check_list_options,
    decode_continue,
    encode_continue,
    parse_revision,
    selection_of,
)
from apiserver.store.base import Expired, FutureRevision, Store
from apiserver.watchcache import WatchCache
from apiserver.watchcache_events import (
    CacheNotReady,
    Listing,
    RevisionTooLarge,
    RevisionTooOld,
    Scope,
    SlowWatcher,
)
from apiserver.watcher import Watcher
from podyard.api import errors
from podyard.api.resources import Resource
from podyard.api.types import meta_v1
from podyard.base import clock

# Objects read from the store at once while looking for those that a selector wants.
_SCAN_PAGE = 500


@dataclass(frozen=True, slots=True)
class ListResult:
    """A page of a list.

    Attributes:
        remaining: items after this page; None where it is not said (the last page, selectors).
    """

    items: list[Item]
    resource_version: str
    continue_token: str = ""
    remaining: int | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """What a watch sends at once; see `apiserver.watchcache_events.WatchFrame`.

    Attributes:
        events: (type, object in the watched row's version).
        revision: a resume point; 0 while initial events are under way.
    """

    events: list[tuple[str, Item]] = field(default_factory=list)
    revision: int = 0
    bookmark: bool = False
    initial_events_end: bool = False


class Reader:
    """Reads of all rows."""

    def __init__(self, store: Store, cache: WatchCache) -> None:
        self._store = store
        self._cache = cache

    async def get(self, row: Resource, namespace: str, name: str, resource_version: str = "") -> Item:
        """One object; without a resourceVersion the newest there is.

        Raises:
            ApiError: NotFound, or the store does not answer.
        """
        key = row.key(namespace, name)
        with translated():
            if resource_version in ("", "0"):
                found = await self.newest(key) if not resource_version else await self._any(key)
            else:
                await self._cache.wait_until(parse_revision(resource_version))
                found = self._cached(key)
        if found is None:
            raise errors.NotFound.of(row.plural, name, row.group)
        return found.view(row)

    async def list(self, row: Resource, namespace: str, options: meta_v1.ListOptions) -> ListResult:
        """A list or a page of one.

        Raises:
            ApiError: bad options, Expired, a revision that is not reached.
        """
        check_list_options(options, watch=False)
        selection = selection_of(row, namespace, options)
        token_text: str = getattr(options, "continue")
        version, limit = options.resourceVersion, max(0, options.limit)
        if token_text:
            if version not in ("", "0"):
                raise errors.BadRequest("specifying resource version is not allowed when using continue")
            return await self._continue(row, namespace, selection, token_text, limit)
        revision = parse_revision(version)
        exact = options.resourceVersionMatch == EXACT or (
            revision > 0 and limit > 0 and not options.resourceVersionMatch
        )
        with translated():
            if exact:
                return await self._list_at(row, namespace, selection, revision, "", limit)
            if not version:
                await self._cache.wait_ready()
                await self._cache.fresh()
            elif revision:
                await self._cache.wait_until(revision)
            else:
                await self._cache.wait_ready()
                # Source: a list from whatever is cached is never paged.
                limit = 0
        return self._list_cached(row, namespace, selection, "", limit)

    def watch(
        self, row: Resource, namespace: str, options: meta_v1.ListOptions
    ) -> AsyncGenerator[Frame, None]:
        """The changes of what the options select.

        Raises:
            ApiError: bad options, at once. While iterating: Expired when the revision is too old.
        """
        check_list_options(options, watch=True)
        selection = selection_of(row, namespace, options)
        parse_revision(options.resourceVersion)
        scope = scope_of(namespace, selection.name if selection else "")
        return self._watch(row, scope, selection, options)

    async def _watch(
        self, row: Resource, scope: str, selection: Selection | None, options: meta_v1.ListOptions
    ) -> AsyncGenerator[Frame, None]:
        with translated():
            revision, initial = await self._start_of_watch(
                options.resourceVersion,
                send_initial_events=(
                    options.sendInitialEvents if options.HasField("sendInitialEvents") else None
                ),
            )
            watcher = self._cache.watch(
                [_scope(selection)] if selection else [],
                from_revision=revision,
                initial_events=initial,
                end_initial_events=options.sendInitialEvents and options.allowWatchBookmarks,
                bookmarks=options.allowWatchBookmarks,
            )
        timer = None
        if options.timeoutSeconds > 0:
            timer = clock.call_at(clock.now_s() + options.timeoutSeconds, watcher.finish)
        try:
            with watching(row, scope):
                async for frame in _frames(watcher):
                    events = [(event.type, event.object.view(row)) for event in frame.events]
                    yield Frame(events, frame.revision, frame.bookmark, frame.initial_events_end)
        finally:
            watcher.close()
            if timer is not None:
                timer.cancel()

    async def watch_many(
        self,
        targets: Iterable[tuple[Resource, str, meta_v1.ListOptions]],
        resource_version: str,
        *,
        send_initial_events: bool = False,
    ) -> AsyncIterator[tuple[Resource, Frame]]:
        """Several rows in the one order in which they were stored.

        Yields:
            Parts of the stream: a row and events of it alone. Only a part that ends at a resume
            point has a revision above 0. The end of initial events comes with the first row.
        """
        selections = [selection_of(*target) for target in targets]
        if not selections:
            raise errors.BadRequest("a watch needs at least one target")
        rows = {selection.row.storage_row: selection.row for selection in selections if selection}
        with translated():
            revision, initial = await self._start_of_watch(
                resource_version, send_initial_events=send_initial_events
            )
            watcher = self._cache.watch(
                [_scope(selection) for selection in selections if selection],
                from_revision=revision,
                initial_events=initial,
                end_initial_events=initial,
                bookmarks=True,
            )
        first = next(iter(rows.values()), None)
        try:
            with watching(None, "cluster"):
                async for frame in _frames(watcher):
                    if not frame.events:
                        if first is not None:
                            yield first, Frame([], frame.revision, frame.bookmark, frame.initial_events_end)
                        continue
                    for row, events, last in _runs(rows, frame.events):
                        yield row, Frame(events, frame.revision if last else 0)
        finally:
            watcher.close()

    async def _start_of_watch(
        self, resource_version: str, *, send_initial_events: bool | None
    ) -> tuple[int | None, bool]:
        """Waits for what a watch starts from: (revision to start after, initial events wanted).

        Source: resource version semantics of watch, KEP-3157.
        """
        await self._cache.wait_ready()
        revision = parse_revision(resource_version)
        if send_initial_events:
            if revision:
                await self._cache.wait_until(revision)
            elif not resource_version:
                await self._cache.fresh()
            return None, True
        if revision:
            return revision, False
        if not resource_version:
            await self._cache.fresh()
        return None, send_initial_events is None

    async def newest(self, key: str) -> ApiObject | None:
        try:
            await self._cache.fresh()
        except (RevisionTooLarge, CacheNotReady):
            # The cache lags behind a store that answers: ask the store itself.
            stored, _ = await self._store.get(key)
            found = None if stored is None else self._cache.object_of(stored)
            assert found is None or isinstance(found, ApiObject)
            return found
        return self._cached(key)

    async def _any(self, key: str) -> ApiObject | None:
        await self._cache.wait_ready()
        return self._cached(key)

    def _cached(self, key: str) -> ApiObject | None:
        found = self._cache.get(key)
        assert found is None or isinstance(found, ApiObject)
        return found

    def _list_cached(
        self, row: Resource, namespace: str, selection: Selection | None, start_after: str, limit: int
    ) -> ListResult:
        """A page as of the cache's revision."""
        if selection is None:
            return ListResult([], str(self._cache.revision))
        resource = row.storage_row.storage_prefix
        index, matches = selection.index(), selection.matcher()
        if index is not None:
            listing = self._cache.select_index(resource, *index)
            objects = [
                found for found in listing.objects if selection.covers(found.key) and found.key > start_after
            ]
        else:
            listing = self._cache.select(resource, selection.prefix, start_after=start_after)
            objects = listing.objects
        if matches is not None:
            objects = [found for found in objects if matches(found)]
        more = bool(limit) and len(objects) > limit
        remaining = len(objects) - limit if more else 0
        page = Listing(objects[:limit] if more else objects, listing.revision, more, remaining)
        return _result(row, namespace, selection, page)

    async def _list_at(
        self,
        row: Resource,
        namespace: str,
        selection: Selection | None,
        revision: int,
        start_after: str,
        limit: int,
    ) -> ListResult:
        """A page as of an old revision, from the store."""
        if selection is None:
            return ListResult([], str(revision))
        matches = selection.matcher()
        prefix = row.prefix(namespace if row.namespaced else "")
        found: list[Any] = []
        while True:
            wanted = _SCAN_PAGE if matches is not None and limit else limit
            try:
                page = await self._cache.list_at(prefix, revision, start_after=start_after, limit=wanted)
            except FutureRevision:
                raise RevisionTooLarge(revision, self._cache.revision) from None
            objects = [item for item in page.objects if selection.covers(item.key)]
            found.extend(objects if matches is None else filter(matches, objects))
            if not page.more or (limit and len(found) >= limit):
                break
            start_after = page.objects[-1].key
        more = page.more or bool(limit and len(found) > limit)
        return _result(
            row,
            namespace,
            selection,
            Listing(found[:limit] if limit else found, page.revision, more, page.remaining),
        )

    async def _continue(
        self, row: Resource, namespace: str, selection: Selection | None, text: str, limit: int
    ) -> ListResult:
        prefix = row.prefix(namespace if row.namespaced else "")
        token = decode_continue(text, prefix)
        if token.revision < 0:
            with translated():
                await self._cache.wait_ready()
                await self._cache.fresh()
            return self._list_cached(row, namespace, selection, token.start_after, limit)
        try:
            with translated():
                return await self._list_at(
                    row, namespace, selection, token.revision, token.start_after, limit
                )
        except errors.Expired as error:
            if not isinstance(error.__cause__, Expired):
                raise
            raise _continue_expired(token, prefix) from error


def _continue_expired(token: ContinueToken, prefix: str) -> errors.Expired:
    """Says that the snapshot is gone, and how to go on without one."""
    error = errors.Expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a "
        "new list without the continue parameter, or use the continue token in this response to retrieve "
        "the remainder of the results. Continuing with the provided token results in an inconsistent list - "
        "objects that were created, modified, or deleted between the time the first chunk was returned and "
        "now may show up in the list."
    )
    error.continue_token = encode_continue(ContinueToken(-1, token.start_after), prefix)
    return error


def _result(row: Resource, namespace: str, selection: Selection, listing: Listing) -> ListResult:
    items = [found.view(row) for found in listing.objects]
    if not listing.more:
        return ListResult(items, str(listing.revision))
    prefix = row.prefix(namespace if row.namespaced else "")
    token = encode_continue(ContinueToken(listing.revision, listing.objects[-1].key), prefix)
    # Source: with selectors the rest is not counted.
    remaining = listing.remaining if selection.everything else None
    return ListResult(items, str(listing.revision), token, remaining)


def _scope(selection: Selection) -> Scope:
    resource = selection.row.storage_row.storage_prefix
    prefix = selection.prefix
    return Scope(resource, "" if prefix == resource else prefix, selection.matcher(), selection.index())


def _runs(
    rows: dict[Resource, Resource], events: list[Any]
) -> Iterable[tuple[Resource, list[tuple[str, Item]], bool]]:
    """Splits events into runs of one row each, and says which is the last."""
    run: list[tuple[str, Item]] = []
    current: Resource | None = None
    for event in events:
        row = rows[event.object.row]
        if current is not None and row is not current:
            yield current, run, False
            run = []
        current = row
        run.append((event.type, event.object.view(row)))
    if current is not None:
        yield current, run, True


async def _frames(watcher: Watcher) -> AsyncIterator[Any]:
    try:
        async for frame in watcher:
            yield frame
    except SlowWatcher:
        # As upstream: the stream ends, and the client goes on from the last revision that it saw.
        return
    except RevisionTooOld as error:
        raise api_error(error) from error
