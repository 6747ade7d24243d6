"""What a reconcile function may want done: plain frozen records, carried out by the shell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from podyard.api.types import Key, Message


@dataclass(frozen=True, slots=True)
class Announced:
    """Events about an owner when an action of its has succeeded, or was refused for good.

    `{name}` and `{error}` are filled in. Without a `reason` success is not worth an event.
    """

    about: Message
    reason: str
    message: str
    failed_reason: str
    failed_message: str


@dataclass(frozen=True, slots=True)
class Update:
    """Replace an object as read; `Conflict` requeues the key."""

    obj: Message
    subresource: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object. That its name is taken means that the view was old: the key is decided on again.

    Attributes:
        if_refused: from the error's text, what to write when it is refused for good; None for nothing.
    """

    obj: Message
    reason: str = ""
    announced: Announced | None = None
    if_refused: Callable[[str], Update | None] | None = None


@dataclass(frozen=True, slots=True)
class Patch:
    """Patch an object.

    Attributes:
        body: plain data in the form of `patch_type`.
        subresource: empty or "status".
    """

    kind: type[Message]
    key: Key
    body: Mapping[str, Any] | list[Any]
    subresource: str = ""
    patch_type: str = "application/merge-patch+json"
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete one incarnation of an object; that it is gone already is no error.

    Attributes:
        grace_s: None leaves it to the object; 0 deletes at once.
    """

    kind: type[Message]
    key: Key
    uid: str
    grace_s: int | None = None
    resource_version: str = ""
    propagation: str = ""
    reason: str = ""
    announced: Announced | None = None


@dataclass(frozen=True, slots=True)
class DeleteCollection:
    """Delete all objects of a kind in a namespace."""

    kind: type[Message]
    namespace: str


@dataclass(frozen=True, slots=True)
class Emit:
    """Record an event about an object."""

    about: Message
    type: str  # Normal or Warning
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """Look at this key again after so many cluster seconds."""

    delay_s: float


Action = Create | Update | Patch | Delete | DeleteCollection | Emit | RequeueAfter
Actions = list[Action]


@dataclass(slots=True)
class Outcome:
    """What carrying out a list of actions led to."""

    requeue_after_s: float | None = None
    conflict: bool = False
    written: list[tuple[type[Message], int]] = field(default_factory=list)
    deleted: list[tuple[type[Message], Key, str]] = field(default_factory=list)
    uncertain: list[Message] = field(default_factory=list)  # perhaps created: nobody knows yet
