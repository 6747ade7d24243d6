"""Content negotiation, pure: from Accept and Content-Type headers to a form of answer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from podyard.api import errors

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
_ALIASES = {"text/yaml": YAML, "application/x-yaml": YAML, "text/x-yaml": YAML}
_SERVED = (JSON, YAML, PROTOBUF)


@dataclass(frozen=True, slots=True)
class MediaRange:
    """One entry of an Accept header."""

    type: str
    parameters: tuple[tuple[str, str], ...] = ()

    def parameter(self, name: str) -> str:
        return next((value for key, value in self.parameters if key == name), "")


@dataclass(frozen=True, slots=True)
class Form:
    """How to answer: `media` and, for converted answers, `as_kind` with its group and version."""

    media: str
    as_kind: str = ""
    as_group: str = ""
    as_version: str = ""

    @property
    def content_type(self) -> str:
        return self.media


@lru_cache(maxsize=256)
def parse_accept(header: str) -> tuple[MediaRange, ...]:
    """Media ranges, the most wanted first (by q, then by order)."""
    ranges: list[tuple[float, int, MediaRange]] = []
    for index, part in enumerate(header.split(",")):
        name, *rest = (piece.strip() for piece in part.split(";"))
        if not name:
            continue
        quality, parameters = 1.0, []
        for item in rest:
            key, _, value = item.partition("=")
            if key == "q":
                try:
                    quality = float(value)
                except ValueError:
                    quality = 0.0
            else:
                parameters.append((key.strip(), value.strip().strip('"')))
        ranges.append((-quality, index, MediaRange(_ALIASES.get(name, name), tuple(parameters))))
    return tuple(entry for _, _, entry in sorted(ranges, key=lambda item: item[:2]))


@lru_cache(maxsize=256)
def form_of(accept: str, as_kinds: frozenset[str] = frozenset()) -> Form:
    """The form to answer in.

    Args:
        accept: the header; empty means JSON.
        as_kinds: conversions that the endpoint can do, such as "Table".

    Raises:
        NotAcceptable: nothing that the client takes is served.
    """
    for entry in parse_accept(accept) or (MediaRange("*/*"),):
        media = JSON if entry.type in ("*/*", "application/*") else entry.type
        if media not in _SERVED:
            continue
        as_kind = entry.parameter("as")
        if not as_kind:
            return Form(media)
        served = (entry.parameter("g"), entry.parameter("v")) == ("meta.k8s.io", "v1")
        if as_kind in as_kinds and served:
            return Form(media, as_kind, entry.parameter("g"), entry.parameter("v"))
    raise errors.NotAcceptable.of(_SERVED)


_STREAMED = (JSON, PROTOBUF)


def watch_form_of(accept: str, as_kinds: frozenset[str]) -> Form:
    """As `form_of`, for an answer that is a stream of events.

    Raises:
        NotAcceptable: YAML has no framing.
    """
    try:
        form = form_of(accept, as_kinds)
    except errors.NotAcceptable:
        form = Form("")
    if form.media not in _STREAMED:
        raise errors.NotAcceptable.of(f"{media};stream=watch" for media in _STREAMED)
    return form


def body_media(content_type: str) -> str:
    """The media type of a request body; empty means JSON.

    Raises:
        UnsupportedMediaType: nothing here reads it.
    """
    name = content_type.partition(";")[0].strip().lower()
    name = _ALIASES.get(name, name) or JSON
    if name not in _SERVED:
        raise errors.UnsupportedMediaType.of(_SERVED)
    return name
