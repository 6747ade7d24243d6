"""Objects as the registry hands them out: stored bytes and what is made of them, each made once.

`ApiObject` is what the watch cache holds; all readers share it and so its encodings. Rows that are
views of another kind's storage (events.k8s.io) get an `ApiView` that hangs on the stored object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, cast

from google.protobuf.message import DecodeError

from apiserver.watchcache_events import CachedObject
from podyard.api import codec
from podyard.api.errors import StorageReadError
from podyard.api.resources import Resource
from podyard.api.types import Message, copy_of
from podyard.base import log

_logger = log.get_logger("registry")


class Item(Protocol):
    """One object in one version; read-only, shared by all who read it.

    Attributes:
        revision: its resourceVersion; 0 for an object that was not stored (dry run).
        raw: protobuf bytes with the resourceVersion in them, without envelope.
        json: JSON with kind, apiVersion and resourceVersion.
        message: the parsed message, resourceVersion set.
        labels, fields: what selectors select by.
    """

    @property
    def key(self) -> str: ...
    @property
    def revision(self) -> int: ...
    @property
    def create_revision(self) -> int: ...
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def raw(self) -> bytes: ...
    @property
    def json(self) -> bytes: ...
    @property
    def message(self) -> Any: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def fields(self) -> Mapping[str, str]: ...


class ApiObject(CachedObject):
    """A stored object of a row; see `Item`."""

    __slots__ = ("_fields", "_json", "_labels", "_message", "_raw", "_views", "row")

    def __init__(self, row: Resource, key: str, value: bytes, create_revision: int, revision: int) -> None:
        super().__init__(key, value, create_revision, revision)
        self.row = row
        self.release()

    def release(self) -> None:
        self._message: Message | None = None
        self._raw: bytes | None = None
        self._json: bytes | None = None
        self._labels: Mapping[str, str] | None = None
        self._fields: Mapping[str, str] | None = None
        self._views: dict[int, ApiView] | None = None

    @property
    def namespace(self) -> str:
        return self.row.name_of(self.key).namespace

    @property
    def name(self) -> str:
        return self.row.name_of(self.key).name

    @property
    def raw(self) -> bytes:
        if self._raw is None:
            try:
                raw = codec.decode_envelope(self.value)[2]
            except codec.EnvelopeError as error:
                raise self._corrupt(error) from error
            self._raw = codec.append_resource_version(raw, self.revision) if self.revision else raw
        return self._raw

    @property
    def message(self) -> Any:
        if self._message is None:
            try:
                self._message = self.row.message.FromString(self.raw)
            except DecodeError as error:
                raise self._corrupt(error) from error
        return self._message

    @property
    def json(self) -> bytes:
        if self._json is None:
            self._json = codec.encode_json(self.message, self.row.api_version, self.row.kind)
        return self._json

    @property
    def labels(self) -> Mapping[str, str]:
        if self._labels is None:
            self._read_selectable()
        return self._labels or {}

    @property
    def fields(self) -> Mapping[str, str]:
        if self._fields is None:
            self._read_selectable()
        return self._fields or {}

    def at_revision(self, revision: int) -> ApiObject:
        return ApiObject(self.row, self.key, self.value, self.create_revision, revision)

    def view(self, row: Resource) -> Item:
        """The object in a row's version."""
        if row is self.row:
            return self
        if self._views is None:
            self._views = {}
        found = self._views.get(id(row))
        if found is None:
            found = self._views[id(row)] = ApiView(self, row)
        return found

    def _read_selectable(self) -> None:
        try:
            message = self.message
        except StorageReadError as error:
            # One unreadable object must not stop the cache that asks for its node; reading it fails.
            _logger.error("stored object cannot be read", key=self.key, error=str(error))
            self._labels, self._fields = {}, {}
            return
        self._labels = dict(message.metadata.labels)
        self._fields = self.row.fields_of(message)

    def _corrupt(self, error: Exception) -> StorageReadError:
        return StorageReadError(
            f"data from the storage is not transformable revision={self.revision}: {self.key}: {error}"
        )


class ApiView:
    """A stored object in another row's version; see `Item`."""

    __slots__ = ("_fields", "_json", "_raw", "message", "row", "stored")

    def __init__(self, stored: ApiObject, row: Resource) -> None:
        assert row.from_storage is not None
        self.stored = stored
        self.row = row
        self.message: Any = row.from_storage(stored.message)
        self._raw: bytes | None = None
        self._json: bytes | None = None
        self._fields: Mapping[str, str] | None = None

    @property
    def key(self) -> str:
        return self.stored.key

    @property
    def revision(self) -> int:
        return self.stored.revision

    @property
    def create_revision(self) -> int:
        return self.stored.create_revision

    @property
    def namespace(self) -> str:
        return self.stored.namespace

    @property
    def name(self) -> str:
        return self.stored.name

    @property
    def raw(self) -> bytes:
        if self._raw is None:
            self._raw = self.message.SerializeToString()
        return cast("bytes", self._raw)

    @property
    def json(self) -> bytes:
        if self._json is None:
            self._json = codec.encode_json(self.message, self.row.api_version, self.row.kind)
        return self._json

    @property
    def labels(self) -> Mapping[str, str]:
        return self.stored.labels

    @property
    def fields(self) -> Mapping[str, str]:
        if self._fields is None:
            self._fields = self.row.fields_of(self.message)
        return self._fields


_UNSET_WHEN_ZERO = ("generateName", "generation", "namespace")


def encode_stored(row: Resource, message: Message) -> bytes:
    """The bytes to store of an object in a row's version: the stored kind, without its resourceVersion.

    Args:
        message: not changed.
    """
    stored = row.storage_row
    plain: Any = copy_of(message) if row.to_storage is None else row.to_storage(message)
    metadata = plain.metadata
    metadata.ClearField("resourceVersion")
    metadata.ClearField("selfLink")
    for name in _UNSET_WHEN_ZERO:
        # Set to nothing and not set mean the same; one form lets equal objects be equal bytes.
        if not getattr(metadata, name):
            metadata.ClearField(name)
    return codec.encode_envelope(plain, stored.api_version, stored.kind)


def object_maker(rows: Iterable[Resource]) -> Callable[[str, bytes, int, int], ApiObject]:
    """A function that makes the `ApiObject` of a stored key, for the watch cache."""
    by_prefix = {row.storage_prefix: row for row in rows if row.storage is None}
    by_folder: dict[str, Resource] = {}

    def make(key: str, value: bytes, create_revision: int, revision: int) -> ApiObject:
        folder = key[: key.rindex("/") + 1]
        row = by_folder.get(folder)
        if row is None:
            if len(by_folder) > 50_000:
                by_folder.clear()
            parent = folder[: folder.rindex("/", 0, -1) + 1]
            row = by_folder[folder] = by_prefix.get(folder) or by_prefix[parent]
        return ApiObject(row, key, value, create_revision, revision)

    return make
