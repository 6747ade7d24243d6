"""API errors: one exception class per Status reason, and the field errors inside `Invalid`.

The server raises these, every transport carries them as meta/v1 `Status`, and the client gets
the same class back through `from_status`. One table (`CLASSES`) joins reason, HTTP code, gRPC
code and whether a retry can help. Texts are upstream's, since tools match on them.

Counterpart: apimachinery `api/errors` and `util/validation/field`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from podyard.api.quoting import go_quote, shown
from podyard.api.types import Status, StatusCause, StatusDetails

OBJECT_MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)

# Canonical gRPC codes by number; grpc itself stays at the transports' edge.
GRPC_UNKNOWN = 2
GRPC_INVALID_ARGUMENT = 3
GRPC_DEADLINE_EXCEEDED = 4
GRPC_NOT_FOUND = 5
GRPC_ALREADY_EXISTS = 6
GRPC_PERMISSION_DENIED = 7
GRPC_RESOURCE_EXHAUSTED = 8
GRPC_FAILED_PRECONDITION = 9
GRPC_ABORTED = 10
GRPC_OUT_OF_RANGE = 11
GRPC_UNIMPLEMENTED = 12
GRPC_INTERNAL = 13
GRPC_UNAVAILABLE = 14
GRPC_DATA_LOSS = 15
GRPC_UNAUTHENTICATED = 16

# Cause types of details.causes[].reason.
CAUSE_DUPLICATE = "FieldValueDuplicate"
CAUSE_FORBIDDEN = "FieldValueForbidden"
CAUSE_INVALID = "FieldValueInvalid"
CAUSE_NOT_FOUND = "FieldValueNotFound"
CAUSE_NOT_SUPPORTED = "FieldValueNotSupported"
CAUSE_REQUIRED = "FieldValueRequired"
CAUSE_TOO_FEW = "FieldValueTooFew"
CAUSE_TOO_LONG = "FieldValueTooLong"
CAUSE_TOO_MANY = "FieldValueTooMany"
CAUSE_TOO_SHORT = "FieldValueTooShort"
CAUSE_TYPE_INVALID = "FieldValueTypeInvalid"
CAUSE_INTERNAL = "InternalError"
CAUSE_NAMESPACE_TERMINATING = "NamespaceTerminating"
CAUSE_VERSION_TOO_LARGE = "ResourceVersionTooLarge"


class ApiError(Exception):
    """A request that failed, as a Status.

    Args:
        message: the whole text that the user reads.
        group, kind, name, uid: what failed; `kind` is the resource's plural, or the Kind in `Invalid`.
        causes: one per field error.
        retry_after_s: whole seconds after which a retry makes sense; 0 = not said.
        code: HTTP code where it differs from the class's own.
        reason: reason where it differs from the class's own (only for reasons unknown here).
    """

    reason: ClassVar[str] = ""
    http_code: ClassVar[int] = 500
    grpc_code: ClassVar[int] = GRPC_UNKNOWN
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str = "",
        *,
        group: str = "",
        kind: str = "",
        name: str = "",
        uid: str = "",
        causes: Sequence[StatusCause] = (),
        retry_after_s: int = 0,
        code: int = 0,
        reason: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.group = group
        self.kind = kind
        self.name = name
        self.uid = uid
        self.causes = tuple(causes)
        self.retry_after_s = retry_after_s
        self.code = code or self.http_code
        self.status_reason = reason or self.reason
        # Set where a list may go on from (an expired continue token): goes into the Status' metadata.
        self.continue_token = ""
        # Answers of the router itself carry `details` with nothing in them.
        self.empty_details = False

    def to_status(self) -> Status:
        """This error as meta/v1 Status; `details` is absent when there is nothing to say in it."""
        status = Status(status="Failure", message=self.message, reason=self.status_reason, code=self.code)
        status.metadata.SetInParent()
        if self.continue_token:
            setattr(status.metadata, "continue", self.continue_token)
        details = StatusDetails(
            name=self.name, group=self.group, kind=self.kind, uid=self.uid, causes=self.causes
        )
        if self.retry_after_s:
            details.retryAfterSeconds = self.retry_after_s
        said = (self.name, self.group, self.kind, self.uid, self.causes, self.retry_after_s)
        if self.empty_details or any(said):
            status.details.CopyFrom(details)
        return status


def _named(resource: str, group: str) -> str:
    """`deployments.apps`, or `pods` in the core group."""
    return f"{resource}.{group}" if group else resource


class NotFound(ApiError):
    """The object or route does not exist."""

    reason = "NotFound"
    http_code = 404
    grpc_code = GRPC_NOT_FOUND

    @classmethod
    def of(cls, resource: str, name: str, group: str = "") -> NotFound:
        """`pods "web" not found`."""
        text = f"{_named(resource, group)} {go_quote(name)} not found"
        return cls(text, group=group, kind=resource, name=name)

    @classmethod
    def route(cls) -> NotFound:
        """A served group version has no such resource or part."""
        error = cls("the server could not find the requested resource")
        error.empty_details = True
        return error


class AlreadyExists(ApiError):
    """An object of this name is there already."""

    reason = "AlreadyExists"
    http_code = 409
    grpc_code = GRPC_ALREADY_EXISTS

    @classmethod
    def of(cls, resource: str, name: str, group: str = "") -> AlreadyExists:
        """`pods "web" already exists`."""
        text = f"{_named(resource, group)} {go_quote(name)} already exists"
        return cls(text, group=group, kind=resource, name=name)

    @classmethod
    def generated(cls, resource: str, name: str, group: str = "") -> AlreadyExists:
        """A generated name was taken; the caller may ask again at once."""
        text = (
            f"{_named(resource, group)} {go_quote(name)} already exists, "
            "the server was not able to generate a unique name for the object"
        )
        return cls(text, group=group, kind=resource, name=name, retry_after_s=1)


class Conflict(ApiError):
    """A precondition (resourceVersion, uid) no longer holds."""

    reason = "Conflict"
    http_code = 409
    grpc_code = GRPC_ABORTED

    @classmethod
    def of(cls, resource: str, name: str, detail: str = OBJECT_MODIFIED, group: str = "") -> Conflict:
        """`Operation cannot be fulfilled on pods "web": DETAIL`."""
        text = f"Operation cannot be fulfilled on {_named(resource, group)} {go_quote(name)}: {detail}"
        return cls(text, group=group, kind=resource, name=name)

    @classmethod
    def precondition(
        cls, resource: str, name: str, field: str, wanted: str, found: str, group: str = ""
    ) -> Conflict:
        """A delete or update named a `field` ("UID" or "ResourceVersion") that the object does not have."""
        detail = f"Precondition failed: {field} in precondition: {wanted}, {field} in object meta: {found}"
        return cls.of(resource, name, detail, group)


class Invalid(ApiError):
    """Field validation failed; `causes` has every error."""

    reason = "Invalid"
    http_code = 422
    grpc_code = GRPC_INVALID_ARGUMENT

    @classmethod
    def of(cls, kind: str, name: str, causes: Iterable[StatusCause], group: str = "") -> Invalid:
        """`Pod "web" is invalid: [a, b]`."""
        listed = list(causes)
        text = f"{_named(kind, group)} {go_quote(name)} is invalid"
        if listed:
            text += f": {aggregate(listed)}"
        return cls(text, group=group, kind=kind, name=name, causes=listed)


class BadRequest(ApiError):
    """The request itself is malformed."""

    reason = "BadRequest"
    http_code = 400
    grpc_code = GRPC_INVALID_ARGUMENT


class Unauthorized(ApiError):
    """No valid credential came with the request."""

    reason = "Unauthorized"
    http_code = 401
    grpc_code = GRPC_UNAUTHENTICATED

    def __init__(self, message: str = "Unauthorized", **details: Any) -> None:
        super().__init__(message, **details)


class Forbidden(ApiError):
    """The authorizer or an admission rule said no."""

    reason = "Forbidden"
    http_code = 403
    grpc_code = GRPC_PERMISSION_DENIED

    @classmethod
    def of(
        cls,
        resource: str,
        name: str,
        detail: str,
        group: str = "",
        causes: Sequence[StatusCause] = (),
    ) -> Forbidden:
        """`pods "web" is forbidden: DETAIL`; without a name `pods is forbidden: DETAIL`."""
        if not resource:
            text = f"forbidden: {detail}"
        elif not name:
            text = f"{_named(resource, group)} is forbidden: {detail}"
        else:
            text = f"{_named(resource, group)} {go_quote(name)} is forbidden: {detail}"
        return cls(text, group=group, kind=resource, name=name, causes=causes)

    @classmethod
    def namespace_terminating(cls, resource: str, name: str, namespace: str, group: str = "") -> Forbidden:
        """A create in a namespace that is being deleted."""
        detail = f"unable to create new content in namespace {namespace} because it is being terminated"
        cause = StatusCause(
            reason=CAUSE_NAMESPACE_TERMINATING,
            message=f"namespace {namespace} is being terminated",
            field="metadata.namespace",
        )
        return cls.of(resource, name, detail, group, causes=[cause])


class Expired(ApiError):
    """The asked revision was compacted or left the watch cache: list again."""

    reason = "Expired"
    http_code = 410
    grpc_code = GRPC_OUT_OF_RANGE

    @classmethod
    def too_old(cls, revision: int, oldest: int) -> Expired:
        """A watch asked for `revision`, the first one still known is `oldest`."""
        return cls(f"too old resource version: {revision} ({oldest})")

    @classmethod
    def watch_compacted(cls) -> Expired:
        """The store compacted past an open watch."""
        return cls("The resourceVersion for the provided watch is too old.")

    @classmethod
    def list_compacted(cls) -> Expired:
        """A list at an exact revision that the store has compacted."""
        return cls("The resourceVersion for the provided list is too old.")

    @classmethod
    def continue_compacted(cls) -> Expired:
        """A continue token that can't be served consistently any more."""
        return cls(
            "The provided continue parameter is too old to display a consistent list result. "
            "You must start a new list without the continue parameter."
        )


class Gone(ApiError):
    """The resource is permanently away."""

    reason = "Gone"
    http_code = 410
    grpc_code = GRPC_OUT_OF_RANGE


class TooManyRequests(ApiError):
    """Flow control, or a disruption budget, refused for now."""

    reason = "TooManyRequests"
    http_code = 429
    grpc_code = GRPC_RESOURCE_EXHAUSTED
    retryable = True


class Timeout(ApiError):
    """The deadline passed; whether the change happened is unknown."""

    reason = "Timeout"
    http_code = 504
    grpc_code = GRPC_DEADLINE_EXCEEDED
    retryable = True

    @classmethod
    def of(cls, detail: str, retry_after_s: int = 0, causes: Sequence[StatusCause] = ()) -> Timeout:
        """`Timeout: DETAIL`."""
        return cls(f"Timeout: {detail}", retry_after_s=retry_after_s, causes=causes)

    @classmethod
    def too_large_version(cls, wanted: int, current: int, retry_after_s: int = 1) -> Timeout:
        """The request named a resourceVersion that this server has not seen yet."""
        cause = StatusCause(reason=CAUSE_VERSION_TOO_LARGE, message="Too large resource version")
        return cls.of(
            f"Too large resource version: {wanted}, current: {current}", retry_after_s, causes=[cause]
        )


class ServerTimeout(ApiError):
    """The server could not finish in time; the client may retry."""

    reason = "ServerTimeout"
    http_code = 500
    grpc_code = GRPC_UNAVAILABLE
    retryable = True

    @classmethod
    def of(cls, resource: str, verb: str, retry_after_s: int = 1, group: str = "") -> ServerTimeout:
        """The VERB operation against RESOURCE could not be completed."""
        text = (
            f"The {verb} operation against {_named(resource, group)} "
            "could not be completed at this time, please try again."
        )
        return cls(text, group=group, kind=resource, retry_after_s=retry_after_s)


class Unavailable(ApiError):
    """Nobody can serve this now (not ready, no store quorum, server going down)."""

    reason = "ServiceUnavailable"
    http_code = 503
    grpc_code = GRPC_UNAVAILABLE
    retryable = True


class MethodNotAllowed(ApiError):
    """The resource has no such verb."""

    reason = "MethodNotAllowed"
    http_code = 405
    grpc_code = GRPC_UNIMPLEMENTED

    @classmethod
    def of(cls, resource: str, verb: str, group: str = "") -> MethodNotAllowed:
        """`VERB is not supported on resources of kind "pods"`."""
        text = f"{verb} is not supported on resources of kind {go_quote(_named(resource, group))}"
        return cls(text, group=group, kind=resource)

    @classmethod
    def route(cls) -> MethodNotAllowed:
        """A resource's path has no such method."""
        error = cls("the server does not allow this method on the requested resource")
        error.empty_details = True
        return error


class NotAcceptable(ApiError):
    """No media type that the client accepts can be served."""

    reason = "NotAcceptable"
    http_code = 406
    grpc_code = GRPC_INVALID_ARGUMENT

    @classmethod
    def of(cls, media_types: Iterable[str]) -> NotAcceptable:
        """Names the media types that would be accepted."""
        return cls(f"only the following media types are accepted: {', '.join(media_types)}")


class UnsupportedMediaType(ApiError):
    """The body's media type is unknown here."""

    reason = "UnsupportedMediaType"
    http_code = 415
    grpc_code = GRPC_INVALID_ARGUMENT

    @classmethod
    def of(cls, media_types: Iterable[str]) -> UnsupportedMediaType:
        """Names the media types that would be accepted."""
        return cls(
            "the body of the request was in an unknown format - "
            f"accepted media types include: {', '.join(media_types)}"
        )


class RequestEntityTooLarge(ApiError):
    """The body or the stored object is over the limit."""

    reason = "RequestEntityTooLarge"
    http_code = 413
    grpc_code = GRPC_RESOURCE_EXHAUSTED

    @classmethod
    def of(cls, detail: str) -> RequestEntityTooLarge:
        """`Request entity too large: DETAIL`."""
        return cls(f"Request entity too large: {detail}")


class InternalError(ApiError):
    """Our own bug or an unexpected failure below."""

    reason = "InternalError"
    http_code = 500
    grpc_code = GRPC_INTERNAL

    @classmethod
    def of(cls, detail: str) -> InternalError:
        """`Internal error occurred: DETAIL`."""
        return cls(f"Internal error occurred: {detail}", causes=[StatusCause(message=detail)])


class StorageReadError(ApiError):
    """A stored object can't be decoded."""

    reason = "StorageReadError"
    http_code = 500
    grpc_code = GRPC_DATA_LOSS


CLASSES: dict[str, type[ApiError]] = {
    cls.reason: cls
    for cls in (
        NotFound,
        AlreadyExists,
        Conflict,
        Invalid,
        BadRequest,
        Unauthorized,
        Forbidden,
        Expired,
        Gone,
        TooManyRequests,
        Timeout,
        ServerTimeout,
        Unavailable,
        MethodNotAllowed,
        NotAcceptable,
        UnsupportedMediaType,
        RequestEntityTooLarge,
        InternalError,
        StorageReadError,
    )
}
# Which class a Status without a known reason becomes; the first class of a code is the general one.
_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    406: NotAcceptable,
    409: Conflict,
    410: Expired,
    413: RequestEntityTooLarge,
    415: UnsupportedMediaType,
    422: Invalid,
    429: TooManyRequests,
    500: InternalError,
    503: Unavailable,
    504: Timeout,
}


def from_status(status: Status) -> ApiError:
    """The exception that the other side raised; unknown reasons go by the code, else `ApiError`."""
    cls = CLASSES.get(status.reason) or _BY_CODE.get(status.code, ApiError)
    details = status.details
    error = cls(
        status.message,
        group=details.group,
        kind=details.kind,
        name=details.name,
        uid=details.uid,
        causes=list(details.causes),
        retry_after_s=details.retryAfterSeconds,
        code=status.code,
        reason=status.reason,
    )
    error.continue_token = getattr(status.metadata, "continue")
    return error


# Field errors. Paths are written as upstream prints them: `spec.containers[0].name`.


def required(path: str, detail: str = "") -> StatusCause:
    """A value must be given."""
    return _cause(CAUSE_REQUIRED, path, "Required value", detail)


def forbidden(path: str, detail: str) -> StatusCause:
    """A value that other rules disallow."""
    return _cause(CAUSE_FORBIDDEN, path, "Forbidden", detail)


def invalid(path: str, value: Any, detail: str) -> StatusCause:
    """A value that breaks a rule; messages, lists and maps are shown as JSON."""
    return _cause(CAUSE_INVALID, path, f"Invalid value: {shown(value)}", detail)


def invalid_whole(path: str, detail: str) -> StatusCause:
    """As `invalid`, of a value that is not shown."""
    return _cause(CAUSE_INVALID, path, "Invalid value", detail)


def not_supported(path: str, value: Any, allowed: Iterable[str]) -> StatusCause:
    """A value outside its enumeration."""
    choices = ", ".join(go_quote(choice) for choice in sorted(allowed))
    detail = f"supported values: {choices}" if choices else ""
    return _cause(CAUSE_NOT_SUPPORTED, path, f"Unsupported value: {shown(value)}", detail)


def duplicate(path: str, value: Any) -> StatusCause:
    """A value that must be unique and is not."""
    return _cause(CAUSE_DUPLICATE, path, f"Duplicate value: {shown(value)}")


def not_found(path: str, value: Any) -> StatusCause:
    """A value that names something which is not there."""
    return _cause(CAUSE_NOT_FOUND, path, f"Not found: {shown(value)}")


def too_long(path: str, max_bytes: int) -> StatusCause:
    """A string or bytes value over its limit."""
    return _cause(CAUSE_TOO_LONG, path, "Too long", f"may not be more than {max_bytes} bytes")


def too_many(path: str, count: int, max_items: int) -> StatusCause:
    """A list over its limit."""
    noun = "item" if max_items == 1 else "items"
    return _cause(CAUSE_TOO_MANY, path, f"Too many: {count}", f"must have at most {max_items} {noun}")


def too_few(path: str, count: int, min_items: int) -> StatusCause:
    """A list under its limit."""
    noun = "item" if min_items == 1 else "items"
    return _cause(CAUSE_TOO_FEW, path, f"Too few: {count}", f"must have at least {min_items} {noun}")


def internal_field(path: str, detail: str) -> StatusCause:
    """The validator itself could not decide."""
    return _cause(CAUSE_INTERNAL, path, "Internal error", detail)


def aggregate(causes: Sequence[StatusCause]) -> str:
    """All errors in one line: the only one bare, several as `[a, b]`, repeated ones once."""
    texts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _cause(reason: str, path: str, text: str, detail: str = "") -> StatusCause:
    return StatusCause(reason=reason, message=f"{text}: {detail}" if detail else text, field=path)
