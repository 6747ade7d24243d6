"""The writing verbs of every row: create, update, patch, bind.

A write decides on a state (usually the cache's), and the store takes it only if the state still is
what was decided on. If not, the decision is made anew on what the store found instead. Refusals
that may come from an old state or an old view are checked against fresh ones before a client sees
them. So the cache's lag costs a retry and never a wrong answer.

Counterpart: apiserver registry/generic/registry/store.go, registry/rest/{create,update}.go.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from apiserver import patch as patches
from apiserver.registry_errors import translated
from apiserver.registry_objects import ApiObject, Item, encode_stored
from apiserver.registry_options import check_names, check_write_options, parse_revision, settle_namespace
from apiserver.registry_reading import Reader
from apiserver.registry_view import AddressRefused, ClusterAddresses
from apiserver.rules import admission, pods, strategy
from apiserver.rules.warnings import drop_duplicate_owners, warnings_of
from apiserver.store.base import KeyExists, RevisionMismatch, Store
from apiserver.watchcache import WatchCache
from podyard.api import codec, errors, meta, names
from podyard.api.errors import OBJECT_MODIFIED, ApiError
from podyard.api.resources import Resource
from podyard.api.types import Binding, Message, Pod, Service, Status, StatusCause, copy_of, meta_v1
from podyard.base import clock, ids

# Source: RetryGenerateName, maxNameLength - randomLength.
_GENERATE_TRIES = 8
_GENERATED_BASE = 58
_MAX_TRIES = 100
# Source: serviceaccount admission getServiceAccount: ten looks, 100 to 200 ms apart.
_WAITS_FOR_MISSING = 9
_MISSING_S = 0.1
# More than this of set-to-zero fields is not to be expected between two forms of one object.
_PRESENCE_BYTES = 512

Admit = Callable[[admission.Attributes], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a decision wants of the store.

    Attributes:
        message: the new state; None keeps the old one.
        remove: the object goes: at once, or with `message_first` after the new state was stored.
    """

    message: Any = None
    remove: bool = False
    message_first: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """What became of it.

    Attributes:
        object: the object after the write; of a removed one its last state.
        stored: whether the store has carried it out, and so agreed to the state it was decided on.
    """

    object: ApiObject
    created: bool = False
    removed: bool = False
    stored: bool = True


Decide = Callable[[ApiObject | None], Outcome]


class Writer:
    """Writes of all rows.

    Args:
        admit: runs the admission plugins; raises to refuse.
    """

    def __init__(
        self, store: Store, cache: WatchCache, reader: Reader, admit: Admit, addresses: ClusterAddresses
    ) -> None:
        self._store = store
        self._cache = cache
        self._reader = reader
        self._admit = admit
        self._addresses = addresses

    async def create(
        self,
        row: Resource,
        namespace: str,
        obj: Message,
        options: meta_v1.CreateOptions,
        *,
        warnings: list[str],
    ) -> Item:
        """Stores a new object.

        Args:
            warnings: gets what the client should know.

        Raises:
            ApiError: bad names, refused, invalid, AlreadyExists.
        """
        check_write_options(options)
        asked: Any = copy_of(obj)
        namespace = settle_namespace(row, namespace, asked)
        if asked.metadata.resourceVersion not in ("", "0"):
            # Upstream's quirk: a 500 without reason.
            raise ApiError("resourceVersion should not be set on objects to be created", code=500)
        duplicates = drop_duplicate_owners(asked.metadata)
        row.defaults(asked)
        generated = not asked.metadata.name and bool(asked.metadata.generateName)
        for attempt in range(_GENERATE_TRIES if generated else 1):
            new = await self._admitted(row, namespace, asked)
            warnings[:] = [*duplicates, *warnings_of(new)]
            try:
                with translated():
                    made = await self._store_new(row, namespace, new, dry_run=bool(options.dryRun))
                return made.view(row)
            except KeyExists as exists:
                if not generated:
                    raise _already_exists(
                        row, new.metadata.name, self._cache.object_of(exists.current)
                    ) from None
                if attempt == _GENERATE_TRIES - 1:
                    raise errors.AlreadyExists.generated(row.plural, new.metadata.name, row.group) from None
        raise AssertionError("unreachable")

    async def _admitted(self, row: Resource, namespace: str, asked: Any) -> Any:
        """As `_new`, against a fresh view before a refusal counts."""
        try:
            return self._new(row, namespace, asked)
        except (errors.NotFound, errors.Forbidden, AddressRefused):
            # What is missing may just have been made, what is taken freed, here or through another server.
            with translated():
                await self._cache.fresh()
        for _ in range(_WAITS_FOR_MISSING):
            try:
                return self._new(row, namespace, asked)
            except admission.NotYet:
                await clock.sleep(_MISSING_S * (1 + ids.jitter()))
        return self._new(row, namespace, asked)

    async def update(
        self,
        row: Resource,
        namespace: str,
        name: str,
        obj: Message,
        options: meta_v1.UpdateOptions,
        *,
        subresource: str = "",
        warnings: list[str],
    ) -> tuple[Item, bool]:
        """Replaces an object, or creates it where the row allows that.

        Args:
            warnings: gets what the client should know.

        Returns:
            The object, and whether it was created.

        Raises:
            ApiError: bad names, NotFound, Conflict, refused, invalid.
        """
        check_write_options(options)
        asked: Any = copy_of(obj)
        check_names(row, namespace, name, asked.metadata)
        asked.metadata.namespace = namespace if row.namespaced else ""
        duplicates = drop_duplicate_owners(asked.metadata)
        row.defaults(asked)

        def decide(state: ApiObject | None) -> Outcome:
            if state is None:
                if subresource or not row.create_on_update:
                    raise errors.NotFound.of(row.plural, name, row.group)
                made = Outcome(self._new(row, namespace, asked))
                warnings[:] = [*duplicates, *warnings_of(made.message)]
                return made
            changed = self.updated(row, state, copy_of(asked), subresource)
            warnings[:] = [*duplicates, *self._warnings(row, state, changed, subresource)]
            return changed

        written = await self.write(row, row.key(namespace, name), decide, dry_run=bool(options.dryRun))
        return written.object.view(row), written.created

    async def patch(
        self,
        row: Resource,
        namespace: str,
        name: str,
        patch_type: str,
        body: bytes,
        options: meta_v1.PatchOptions,
        *,
        subresource: str = "",
        warnings: list[str],
    ) -> Item:
        """Changes an object by a JSON, merge or strategic merge patch; retried when others change it too.

        Args:
            warnings: gets what the client should know, first what `fieldValidation=Warn` has to say.

        Raises:
            ApiError: UnsupportedMediaType, a patch that does not parse or apply, and all of `update`.
        """
        check_write_options(options)
        field_validation = options.fieldValidation or codec.WARN
        apply = patches.build(patch_type, body, row.message, field_validation)

        def decide(state: ApiObject | None) -> Outcome:
            if state is None:
                raise errors.NotFound.of(row.plural, name, row.group)
            patched = apply(orjson.loads(state.view(row).json))
            decoded = patches.decode(patched, row, field_validation)
            new: Any = decoded.message
            check_names(row, namespace, name, new.metadata)
            duplicates = drop_duplicate_owners(new.metadata, admitted=True)
            row.defaults(new)
            changed = self.updated(row, state, new, subresource)
            said = self._warnings(row, state, changed, subresource)
            warnings[:] = [*apply.warnings, *decoded.warnings, *duplicates, *said]
            return changed

        written = await self.write(row, row.key(namespace, name), decide, dry_run=bool(options.dryRun))
        return written.object.view(row)

    async def bind(
        self, row: Resource, namespace: str, name: str, binding: Binding, options: meta_v1.CreateOptions
    ) -> Status:
        """Assigns a pod to a node.

        Raises:
            ApiError: NotFound, Conflict for a pod that is bound already, gated or being deleted.
        """
        check_write_options(options)
        binding = copy_of(binding)
        settle_namespace(row, namespace, binding)
        if binding.metadata.name not in ("", name):
            raise errors.BadRequest("name in URL does not match name in Binding object")

        def decide(state: ApiObject | None) -> Outcome:
            if state is None:
                raise errors.NotFound.of(row.plural, name, row.group)
            new: Pod = copy_of(state.message)
            pods.bind(new, binding, clock.now_s())
            return Outcome(new)

        await self.write(row, row.key(namespace, name), decide, dry_run=bool(options.dryRun))
        return Status(status="Success", code=201)

    async def write(self, row: Resource, key: str, decide: Decide, *, dry_run: bool = False) -> Written:
        """Carries out what `decide` wants of the object under `key`, on the state that it decided on.

        Args:
            decide: pure but for its view of the cluster; called again after every change by others.

        Raises:
            ApiError: what `decide` raised on a fresh state, or the store's troubles.
        """
        state = self._cached(key)
        verified = False
        for _ in range(_MAX_TRIES):
            if state is None and not verified:
                state, verified = await self._verified(key), True
            try:
                outcome = decide(state)
            except ApiError:
                if verified:
                    raise
                state, verified = await self._verified(key), True
                continue
            try:
                with translated():
                    done = await self._carry_out(row, key, state, outcome, dry_run=dry_run)
            except (KeyExists, RevisionMismatch) as found:
                current = found.current
                state = None if current is None else self._object_of(current)
                # What the store found is the newest; the view on other objects may still be old.
                verified = state is None
                continue
            if done.stored or verified:
                return done
            # Nothing was written, so nobody has said that the state is the newest.
            state, verified = await self._verified(key), True
        raise errors.Conflict.of(row.plural, row.storage_row.name_of(key).name, OBJECT_MODIFIED, row.group)

    async def _carry_out(
        self, row: Resource, key: str, state: ApiObject | None, outcome: Outcome, *, dry_run: bool
    ) -> Written:
        message = outcome.message
        if state is None:
            assert message is not None
            made = await self._store_new(row, "", message, dry_run=dry_run, key=key)
            return Written(made, created=True)
        if message is None and not outcome.remove:
            return Written(state, stored=False)
        value = state.value if message is None else encode_stored(row, message)
        if dry_run:
            final = self._make(row, key, value, state.create_revision, state.revision)
            return Written(final, removed=outcome.remove, stored=False)
        revision = state.revision
        if not outcome.remove and _is_same(row, state, message, value):
            return Written(state, stored=False)
        if not outcome.remove or outcome.message_first:
            with self._addresses.reserved(key, message) as reservation:
                revision = await self._store.update(key, value, expected_revision=revision)
                reservation.written(revision)
        if outcome.remove:
            try:
                revision = await self._store.delete(key, expected_revision=revision)
            except RevisionMismatch as found:
                # Marked by us, removed by a writer who found the mark: what was asked for is done.
                if not outcome.message_first or found.current is not None:
                    raise
        final = self._make(row, key, value, state.create_revision, revision)
        return Written(final, removed=outcome.remove)

    async def _store_new(
        self, row: Resource, namespace: str, message: Any, *, dry_run: bool, key: str = ""
    ) -> ApiObject:
        key = key or row.key(namespace, message.metadata.name)
        value = encode_stored(row, message)
        if dry_run:
            current, _ = await self._store.get(key)
            if current is not None:
                raise KeyExists(current)
            return self._make(row, key, value, 0, 0)
        with self._addresses.reserved(key, message) as reservation:
            revision = await self._store.create(key, value)
            reservation.written(revision)
        return self._make(row, key, value, revision, revision)

    def _new(self, row: Resource, namespace: str, asked: Any) -> Any:
        """A new object as it will be stored; `asked` is not changed."""
        new: Any = copy_of(asked)
        metadata = new.metadata
        if not metadata.name and metadata.generateName:
            metadata.name = metadata.generateName[:_GENERATED_BASE] + ids.name_suffix()
        self._admit(
            admission.Attributes(
                admission.CREATE, row, namespace, metadata.name, obj=new, name_suffix=ids.name_suffix()
            )
        )
        metadata.uid = ids.uid()
        metadata.creationTimestamp.CopyFrom(meta.time_of(clock.now_s()))
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "selfLink"):
            metadata.ClearField(name)
        strategy.prepare_create(row, new, clock.now_s())
        if isinstance(new, Service):
            self._addresses.assign(new, row.key(namespace, metadata.name))
        causes = strategy.validate_create(row, new)
        _raise_invalid(row, metadata.name, [*_name_causes(metadata, causes), *causes])
        return new

    def updated(self, row: Resource, state: ApiObject, new: Any, subresource: str) -> Outcome:
        """The decision of an update; `new` is changed into what will be stored."""
        old: Any = state.view(row).message
        name = old.metadata.name
        _check_preconditions(row, state, new.metadata, old.metadata)
        new.metadata.resourceVersion = old.metadata.resourceVersion
        self._admit(
            admission.Attributes(
                admission.UPDATE, row, old.metadata.namespace, name, subresource, obj=new, old=old
            )
        )
        strategy.prepare_update(row, new, old, clock.now_s(), subresource)
        if isinstance(new, Service) and not subresource:
            self._addresses.assign(new, state.key, old)
        _raise_invalid(row, name, strategy.validate_update(row, new, old, subresource))
        return Outcome(new, remove=strategy.strategy_of(row).delete_on_update(new, old))

    @staticmethod
    def _warnings(row: Resource, state: ApiObject, changed: Outcome, subresource: str) -> list[str]:
        """Of an update; those of subresources have none."""
        return [] if subresource else warnings_of(changed.message, state.view(row).message)

    async def _verified(self, key: str) -> ApiObject | None:
        """The object as it is now, with a fresh cache around it."""
        with translated():
            return await self._reader.newest(key)

    def _cached(self, key: str) -> ApiObject | None:
        found = self._cache.get(key)
        assert found is None or isinstance(found, ApiObject)
        return found

    def _object_of(self, stored: Any) -> ApiObject:
        found = self._cache.object_of(stored)
        assert isinstance(found, ApiObject)
        return found

    @staticmethod
    def _make(row: Resource, key: str, value: bytes, create_revision: int, revision: int) -> ApiObject:
        return ApiObject(row.storage_row, key, value, create_revision, revision)


def _is_same(row: Resource, state: ApiObject, message: Any, value: bytes) -> bool:
    """Whether an update changes nothing, in which case nothing is written.

    Unset and set-to-zero mean the same and differ in bytes, by a few. So bytes of very different
    or of equal length that differ are a change; only else the objects' JSON is compared.
    """
    if value == state.value:
        return True
    if len(value) == len(state.value) or abs(len(value) - len(state.value)) > _PRESENCE_BYTES:
        return False
    return codec.encode_json(message, row.api_version, row.kind) == state.view(row).json


def _check_preconditions(row: Resource, state: ApiObject, new: Any, old: Any) -> None:
    """An update is of the very object, at the very version, that it names."""
    conflict = functools.partial(errors.Conflict.of, row.plural, old.name, group=row.group)
    if new.uid and new.uid != old.uid:
        detail = f"Precondition failed: UID in precondition: {new.uid}, UID in object meta: {old.uid}"
        raise conflict(
            f"StorageError: invalid object, Code: 4, Key: {state.key}, ResourceVersion: 0, "
            f"AdditionalErrorMsg: {detail}"
        )
    revision = parse_revision(new.resourceVersion)
    if not revision and not row.unconditional_update:
        cause = errors.invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise errors.Invalid.of(row.kind, old.name, [cause], row.group)
    if revision and revision != state.revision:
        raise conflict(OBJECT_MODIFIED)


def _name_causes(metadata: Any, found: list[StatusCause]) -> list[StatusCause]:
    """What would break the key, for kinds whose validation does not look at names."""
    field = "metadata.name"
    if any(cause.field == field for cause in found):
        return []
    if not metadata.name:
        return [errors.required(field, "name or generateName is required")]
    return [
        errors.invalid(field, metadata.name, problem)
        for problem in names.path_segment_problems(metadata.name)
    ]


def _raise_invalid(row: Resource, name: str, causes: list[StatusCause]) -> None:
    if causes:
        raise errors.Invalid.of(row.kind, name, causes, row.group)


def _already_exists(row: Resource, name: str, current: Any) -> errors.AlreadyExists:
    error = errors.AlreadyExists.of(row.plural, name, row.group)
    if meta.is_terminating(current.message.metadata):
        error.message = f"object is being deleted: {error.message}"
    return error
