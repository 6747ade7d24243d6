"""The resource table: one row per served kind; routes, services, discovery, storage come from it.

Rows are facts of `tables/resources.tsv` for the resources named in `tables/served.tsv`, joined with
the functions for each kind (defaults, validation, columns, selectable fields). A new kind is a line
in `served.tsv` and its functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from podyard.api import defaults, event_conversion, facts, hpa_conversion, selectable, validation
from podyard.api.errors import BadRequest, NotFound
from podyard.api.types import (
    API_MODULES,
    Event,
    EventsV1Event,
    Key,
    Message,
    StatusCause,
    autoscaling_v1,
    autoscaling_v2,
)

_SUBRESOURCE_OF_METHOD = {
    "UpdateStatus": "status",
    "UpdateApproval": "approval",
    "Finalize": "finalize",
    "Bind": "binding",
    "Evict": "eviction",
    "GetScale": "scale",
    "UpdateScale": "scale",
    "Logs": "log",
    "Exec": "exec",
    "Attach": "attach",
    "PortForward": "portforward",
    "CreateToken": "token",
}

# Kinds of which a delete answers with the last state; of the others with a Status.
# Source: ReturnDeletedObject of upstream's registries, and the answers in its OpenAPI document.
_SHOWN_WHEN_DELETED = frozenset(
    {
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
        "podtemplates",
        "resourcequotas",
        "serviceaccounts",
        "services",
        "deviceclasses.resource.k8s.io",
        "resourceclaims.resource.k8s.io",
        "resourceclaimtemplates.resource.k8s.io",
        "resourceslices.resource.k8s.io",
        "csidrivers.storage.k8s.io",
        "csinodes.storage.k8s.io",
        "storageclasses.storage.k8s.io",
        "volumeattachments.storage.k8s.io",
        "volumeattributesclasses.storage.k8s.io",
    }
)


@dataclass(frozen=True, slots=True)
class Subresource:
    """A part of a resource with its own path, such as `status`; `kind` is what its body is."""

    name: str
    group: str
    version: str
    kind: str
    verbs: tuple[str, ...]

    @property
    def api_version(self) -> str:
        """Of the body."""
        return f"{self.group}/{self.version}" if self.group else self.version


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """One served kind. Rows are compared by identity."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    list_kind: str
    short_names: tuple[str, ...]
    categories: tuple[str, ...]
    namespaced: bool
    verbs: tuple[str, ...]
    subresources: Mapping[str, Subresource]
    message: type[Message]
    list_message: type[Message]
    service: str  # full name of the gRPC service
    storage_prefix: str  # etcd keys start so, with a slash at the end
    create_on_update: bool
    unconditional_update: bool
    storage_version_hash: str
    # Rows with another kind's storage: that row, and the conversions.
    storage: Resource | None = None
    to_storage: Callable[[Any], Message] | None = field(default=None, repr=False)
    from_storage: Callable[[Any], Message] | None = field(default=None, repr=False)
    # Changes the object in place, setting what upstream sets.
    defaults: Callable[[Any], None] = field(default=defaults.none, repr=False)
    validate: Callable[[Any], list[StatusCause]] = field(default=validation.nothing, repr=False)
    validate_update: Callable[[Any, Any], list[StatusCause]] = field(
        default=validation.nothing_new, repr=False
    )
    fields: Mapping[str, selectable.FieldOf] = field(default_factory=dict, repr=False)
    aliases: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def api_version(self) -> str:
        """`v1` or `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def is_review(self) -> bool:
        """Answered and forgotten: there is nothing but `create`."""
        return not self.storage_prefix

    @property
    def storage_row(self) -> Resource:
        """The row whose kind is stored: this one, save for views of another kind."""
        return self.storage or self

    @property
    def qualified(self) -> str:
        """`pods`, `leases.coordination.k8s.io`: how errors and authorization name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def shows_deleted(self) -> bool:
        """Whether a delete answers with the object also when it is gone."""
        return self.qualified in _SHOWN_WHEN_DELETED

    def prefix(self, namespace: str = "") -> str:
        """What the keys of all objects (of a namespace) start with."""
        return f"{self.storage_prefix}{namespace}/" if namespace else self.storage_prefix

    def key(self, namespace: str, name: str) -> str:
        """An object's key in the store."""
        return f"{self.storage_prefix}{namespace}/{name}" if self.namespaced else self.storage_prefix + name

    def name_of(self, key: str) -> Key:
        """Namespace and name of an object's key."""
        namespace, _, name = key[len(self.storage_prefix) :].rpartition("/")
        return Key(namespace, name)

    def fields_of(self, message: Any) -> dict[str, str]:
        """The object's selectable fields."""
        found = {"metadata.name": message.metadata.name, "metadata.namespace": message.metadata.namespace}
        for label, function in self.fields.items():
            found[label] = function(message)
        return found

    def field_label(self, label: str) -> str:
        """The label under which `fields_of` has the value.

        Raises:
            BadRequest: this kind has no such label.
        """
        if label in self.fields or label in ("metadata.name", "metadata.namespace"):
            return label
        if label in self.aliases:
            return self.aliases[label]
        raise BadRequest(selectable.unsupported_text(self.message, label))

    def subresource_verbs(self, name: str) -> tuple[str, ...]:
        """Verbs of a subresource; none when it is not served."""
        part = self.subresources.get(name)
        return part.verbs if part is not None else ()


def _split(cell: str) -> tuple[str, ...]:
    return tuple(cell.split("|")) if cell else ()


def _message_classes() -> dict[str, type[Message]]:
    """`apps/v1/Deployment` -> class."""
    found = {}
    for fact in facts.messages().values():
        package, _, name = fact.full_name.rpartition(".")
        if fact.gvk and package in API_MODULES:
            found[fact.gvk] = getattr(API_MODULES[package], name)
    return found


def _subresources(row: dict[str, str], methods: str, parts: list[dict[str, str]]) -> dict[str, Subresource]:
    served = {_SUBRESOURCE_OF_METHOD[method] for method in _split(methods)}
    found = {}
    for part in parts:
        name = part["subresource"]
        if name not in served:
            continue
        body = part["subresource_gvk"]
        group, _, version = (
            body.rpartition("/")[0].rpartition("/") if "/" in body else (row["group"], "", row["version"])
        )
        found[name] = Subresource(name, group, version, part["kind"], _split(part["verbs"]))
    return found


def _build_row(
    row: dict[str, str], parts: list[dict[str, str]], methods: str, classes: dict[str, type[Message]]
) -> Resource:
    api_version = f"{row['group']}/{row['version']}" if row["group"] else row["version"]
    message = classes[f"{api_version}/{row['kind']}"]
    package = message.DESCRIPTOR.file.package
    return Resource(
        group=row["group"],
        version=row["version"],
        kind=row["kind"],
        plural=row["plural"],
        singular=row["singular"],
        list_kind=row["list_kind"],
        short_names=_split(row["short_names"]),
        categories=_split(row["categories"]),
        namespaced=row["namespaced"] == "1",
        verbs=_split(row["verbs"]),
        subresources=_subresources(row, methods, parts),
        message=message,
        # Reviews have no lists.
        list_message=classes[f"{api_version}/{row['list_kind'] or row['kind']}"],
        service=f"podyard.{'.'.join(package.split('.')[-2:])}.{row['kind']}Service",
        storage_prefix=row["etcd_key_template"].partition("{")[0],
        create_on_update=row["create_on_update"] == "1",
        unconditional_update=row["unconditional_update"] == "1",
        storage_version_hash=row["storage_version_hash"],
        defaults=defaults.DEFAULTS.get(message, defaults.none),
        validate=validation.VALIDATE.get(message, validation.nothing),
        validate_update=validation.VALIDATE_UPDATE.get(message, validation.nothing_new),
        fields=selectable.FIELDS.get(message, {}),
        aliases=selectable.ALIASES.get(message, {}),
    )


def _build() -> tuple[Resource, ...]:
    table = list(facts.rows("resources"))
    by_name: dict[tuple[str, str, str], list[dict[str, str]]] = {}
    for row in table:
        by_name.setdefault((row["group"], row["version"], row["plural"]), []).append(row)
    classes = _message_classes()
    built = []
    for served in facts.rows("served"):
        rows = by_name[served["group"], served["version"], served["plural"]]
        main = next(row for row in rows if not row["subresource"])
        built.append(
            _build_row(main, [row for row in rows if row["subresource"]], served["methods"], classes)
        )
    return tuple(_with_views(built))


# Kinds that are views of another kind's storage: that kind, and the conversions to and from it.
_VIEWS: Mapping[type[Message], tuple[type[Message], Callable[[Any], Message], Callable[[Any], Message]]] = {
    EventsV1Event: (Event, event_conversion.from_events_v1, event_conversion.to_events_v1),
    autoscaling_v1.HorizontalPodAutoscaler: (
        autoscaling_v2.HorizontalPodAutoscaler,
        hpa_conversion.to_v2,
        hpa_conversion.to_v1,
    ),
}


def _with_views(rows: list[Resource]) -> list[Resource]:
    by_message = {row.message: row for row in rows}
    for row in rows:
        stored, to_storage, from_storage = _VIEWS.get(row.message, (None, None, None))
        if stored in by_message:
            object.__setattr__(row, "storage", by_message[stored])
            object.__setattr__(row, "to_storage", to_storage)
            object.__setattr__(row, "from_storage", from_storage)
    return rows


# Everything that is served; what is stored; and what is answered and forgotten.
OFFERED: tuple[Resource, ...] = _build()
RESOURCES: tuple[Resource, ...] = tuple(row for row in OFFERED if not row.is_review)
REVIEWS: tuple[Resource, ...] = tuple(row for row in OFFERED if row.is_review)
_BY_PLURAL = {(row.group, row.version, row.plural): row for row in OFFERED}
_BY_KIND = {(row.api_version, row.kind): row for row in OFFERED}
_BY_MESSAGE = {row.message: row for row in OFFERED}


def find_plural(group: str, version: str, plural: str) -> Resource | None:
    """The row of a path's resource; None when it is not served."""
    return _BY_PLURAL.get((group, version, plural))


def by_plural(group: str, version: str, plural: str) -> Resource:
    """As `find_plural`.

    Raises:
        NotFound: it is not served.
    """
    row = find_plural(group, version, plural)
    if row is None:
        raise NotFound.route()
    return row


def find_kind(api_version: str, kind: str) -> Resource | None:
    """The row of a kind; None when it is not served."""
    return _BY_KIND.get((api_version, kind))


def by_kind(api_version: str, kind: str) -> Resource:
    """As `find_kind`.

    Raises:
        NotFound: it is not served.
    """
    row = find_kind(api_version, kind)
    if row is None:
        raise NotFound.route()
    return row


def by_message(message: type[Message]) -> Resource:
    """The row of a message class.

    Raises:
        NotFound: it is not served.
    """
    row = _BY_MESSAGE.get(message)
    if row is None:
        raise NotFound.route()
    return row
