"""Options of reads, pure: what a ListOptions asks for, continue tokens, selectors.

Counterpart: apimachinery internalversion/validation, apiserver storage/continue.go and predicates.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from podyard.api import errors, selectors
from podyard.api.quoting import go_quote, shown
from podyard.api.resources import Resource
from podyard.api.selectors import FieldSelector, LabelSelector, SelectorError
from podyard.api.types import StatusCause, meta_v1

EXACT = "Exact"
NOT_OLDER_THAN = "NotOlderThan"
_META_GROUP = "meta.k8s.io"
_OTHER_NAMESPACE = "the namespace of the provided object does not match the namespace sent on the request"
_TOKEN_VERSION = "meta.k8s.io/v1"
_NAME, _NAMESPACE = "metadata.name", "metadata.namespace"


def parse_revision(text: str) -> int:
    """A resourceVersion as a number; 0 for none.

    Raises:
        ApiError: it is no number (upstream's quirk: a 500 without reason).
    """
    if not text:
        return 0
    if text.isascii() and text.isdigit() and len(text) <= 19:
        return int(text)
    cause = errors.invalid(
        "resourceVersion", text, f"strconv.ParseUint: parsing {go_quote(text)}: invalid syntax"
    )
    raise errors.ApiError(errors.aggregate([cause]), code=500)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a row are wanted.

    Attributes:
        namespace: empty for all namespaces, or a cluster-scoped row.
        name: the one name wanted, empty for all.
    """

    row: Resource
    namespace: str
    name: str
    labels: LabelSelector
    fields: FieldSelector

    @property
    def everything(self) -> bool:
        """No selector stands beside the namespace."""
        return not self.name and self.labels.empty and self.fields.empty

    @property
    def key(self) -> str:
        """The one key that can match, empty when there may be more."""
        if self.name and (self.namespace or not self.row.namespaced):
            return self.row.key(self.namespace, self.name)
        return ""

    @property
    def prefix(self) -> str:
        """What the keys of all that is wanted start with; a whole key where only one can match."""
        return self.key or self.row.prefix(self.namespace if self.row.namespaced else "")

    def covers(self, key: str) -> bool:
        """Whether the namespace and name admit a key of this row."""
        return key == self.key if self.key else key.startswith(self.prefix)

    def index(self) -> tuple[str, str] | None:
        """A (field, value) that every wanted object has, of the fields that the cache indexes."""
        node = self.fields.exact("spec.nodeName") if "spec.nodeName" in self.row.fields else None
        return ("spec.nodeName", node) if node else None

    def matcher(self) -> Callable[[Any], bool] | None:
        """Whether a cached object is wanted; None when the prefix says it all."""
        if self.labels.empty and self.fields.empty and (not self.name or self.key):
            return None
        row, labels, fields, name = self.row, self.labels, self.fields, self.name
        viewed = row.storage is not None

        def matches(stored: Any) -> bool:
            if name and stored.name != name:
                return False
            if not labels.empty and not labels.matches(stored.labels):
                return False
            if fields.empty:
                return True
            return fields.matches((stored.view(row) if viewed else stored).fields)

        return matches


def selection_of(row: Resource, namespace: str, options: meta_v1.ListOptions) -> Selection | None:
    """What a ListOptions selects; None when nothing can match.

    Raises:
        BadRequest: a selector does not parse, or names a field that the row does not have.
    """
    try:
        labels = selectors.parse_labels(options.labelSelector)
        fields = selectors.parse_fields(options.fieldSelector).renamed(row.field_label)
    except SelectorError as error:
        raise errors.BadRequest(str(error)) from None
    name, rest = "", []
    for term in fields.terms:
        placed = term.label == _NAME or (term.label == _NAMESPACE and row.namespaced)
        if term.equal and placed and not term.value:
            # "" asks for an object without a name, which there is none of; it does not mean "any".
            return None
        if term.equal and term.label == _NAME and not name:
            name = term.value
        elif term.equal and term.label == _NAMESPACE and row.namespaced:
            if namespace and namespace != term.value:
                return None
            namespace = term.value
        else:
            rest.append(term)
    return Selection(row, namespace, name, labels, FieldSelector(tuple(rest)))


def check_list_options(options: meta_v1.ListOptions, *, watch: bool) -> None:
    """Refuses combinations that have no meaning.

    Raises:
        Invalid: with all causes.
    """
    causes = _watch_causes(options) if watch else _list_causes(options)
    if causes:
        raise errors.Invalid.of("ListOptions", "", causes, _META_GROUP)


WriteOptions = meta_v1.CreateOptions | meta_v1.UpdateOptions | meta_v1.PatchOptions
_FIELD_VALIDATIONS = ("", "Ignore", "Strict", "Warn")
_MAX_MANAGER_BYTES = 128


def check_write_options(options: WriteOptions) -> None:
    """Refuses values that have no meaning, whichever way they came in.

    Raises:
        Invalid: with all causes.
    """
    causes: list[StatusCause] = []
    if isinstance(options, meta_v1.PatchOptions) and options.HasField("force"):
        causes.append(errors.forbidden("force", "may not be specified for non-apply patch"))
    manager = options.fieldManager
    if len(manager.encode()) > _MAX_MANAGER_BYTES:
        causes.append(errors.too_long("fieldManager", _MAX_MANAGER_BYTES))
    for index, letter in enumerate(manager):
        if not letter.isprintable():
            detail = f"should not contain non-printable character {go_quote(letter)} at position {index}"
            causes.append(errors.invalid("fieldManager", manager, detail))
    if any(value != "All" for value in options.dryRun):
        causes.append(errors.not_supported("dryRun", list(options.dryRun), ["All"]))
    if options.fieldValidation not in _FIELD_VALIDATIONS:
        causes.append(errors.not_supported("fieldValidation", options.fieldValidation, _FIELD_VALIDATIONS))
    if causes:
        raise errors.Invalid.of(options.DESCRIPTOR.name, "", causes, _META_GROUP)


def _list_causes(options: meta_v1.ListOptions) -> list[StatusCause]:
    field, match = "resourceVersionMatch", options.resourceVersionMatch
    causes = []
    if match:
        if not options.resourceVersion:
            detail = "resourceVersionMatch is forbidden unless resourceVersion is provided"
            causes.append(errors.forbidden(field, detail))
        if getattr(options, "continue"):
            causes.append(
                errors.forbidden(field, "resourceVersionMatch is forbidden when continue is provided")
            )
        if match not in (EXACT, NOT_OLDER_THAN):
            causes.append(errors.not_supported(field, match, [EXACT, NOT_OLDER_THAN, ""]))
        if match == EXACT and options.resourceVersion == "0":
            detail = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            causes.append(errors.forbidden(field, detail))
    if options.HasField("sendInitialEvents"):
        causes.append(errors.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return causes


def _watch_causes(options: meta_v1.ListOptions) -> list[StatusCause]:
    field, match = "resourceVersionMatch", options.resourceVersionMatch
    causes = []
    initial = options.HasField("sendInitialEvents")
    if initial and match != NOT_OLDER_THAN:
        detail = f"sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER_THAN}"
        causes.append(errors.forbidden(field, detail))
    if match:
        if not initial:
            detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            causes.append(errors.forbidden(field, detail))
        if match != NOT_OLDER_THAN:
            causes.append(errors.not_supported(field, match, [NOT_OLDER_THAN]))
        if getattr(options, "continue"):
            causes.append(
                errors.forbidden(field, "resourceVersionMatch is forbidden when continue is provided")
            )
    return causes


@dataclass(frozen=True, slots=True)
class ContinueToken:
    """Where a list goes on.

    Attributes:
        revision: of the list's first page; -1 goes on at whatever is the newest (after an expiry).
        start_after: the last key that was delivered.
    """

    revision: int
    start_after: str


def encode_continue(token: ContinueToken, prefix: str) -> str:
    """The opaque text of a token of a list below `prefix`."""
    start = token.start_after.removeprefix(prefix) + "\0"
    body = orjson.dumps({"v": _TOKEN_VERSION, "rv": token.revision, "start": start})
    return base64.urlsafe_b64encode(body).rstrip(b"=").decode()


def decode_continue(text: str, prefix: str) -> ContinueToken:
    """Reads a token.

    Raises:
        BadRequest: it is none of ours, or leads out of `prefix`.
    """
    try:
        body = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError) as error:
        raise _bad_token(f"continue key is not valid: {error}") from None
    if not isinstance(body, dict) or body.get("v") != _TOKEN_VERSION:
        version = body.get("v") if isinstance(body, dict) else ""
        why = f"server does not recognize this encoded version {shown(version)}"
        raise _bad_token(f"continue key is not valid: {why}")
    revision, start = body.get("rv"), body.get("start")
    if type(revision) is not int or revision == 0 or revision < -1:
        raise _bad_token(
            f"continue key is not valid: incorrect encoded start resourceVersion (version {_TOKEN_VERSION})"
        )
    if not isinstance(start, str) or not start:
        raise _bad_token(f"continue key is not valid: encoded start key empty (version {_TOKEN_VERSION})")
    if any(part in (".", "..") for part in start.rstrip("\0").split("/")):
        raise _bad_token("continue key is not valid")
    return ContinueToken(revision, prefix + start.removesuffix("\0"))


def _bad_token(why: str) -> errors.BadRequest:
    return errors.BadRequest(f"invalid continue token: {why}")


def settle_namespace(row: Resource, namespace: str, obj: Any) -> str:
    """The namespace of what a request makes (an object of the row or of its subresource), set in it.

    Raises:
        BadRequest: the body and the request disagree, or neither names one.
    """
    own = obj.metadata.namespace
    if not row.namespaced:
        obj.metadata.namespace = ""
        return ""
    if namespace and own not in ("", namespace):
        raise errors.BadRequest(_OTHER_NAMESPACE)
    if not (namespace or own):
        raise errors.BadRequest("an empty namespace may not be set during creation")
    obj.metadata.namespace = namespace or own
    return namespace or own


def check_names(row: Resource, namespace: str, name: str, metadata: Any) -> None:
    """The body of an update and the path must name the same; a namespace may be left out.

    Raises:
        BadRequest: they do not.

    Source: EnsureObjectNamespaceMatchesRequestNamespace, then checkName.
    """
    if row.namespaced and metadata.namespace not in ("", namespace):
        raise errors.BadRequest(_OTHER_NAMESPACE)
    if not metadata.name:
        raise errors.BadRequest(
            f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )
    if metadata.name != name:
        raise errors.BadRequest(
            f"the name of the object ({metadata.name}) does not match the name on the URL ({name})"
        )
