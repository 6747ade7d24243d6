"""Who asks: the outcome of authentication, carried with every request."""

from __future__ import annotations

from dataclasses import dataclass, field

ANONYMOUS = "system:anonymous"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
# The key of `extra` under which stands which token or certificate it was.
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"


@dataclass(frozen=True, slots=True)
class UserInfo:
    """A user's name and groups, as upstream's user.Info."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What every stage of the pipeline may know of a request."""

    user: UserInfo
    request_id: str = ""
    user_agent: str = ""
