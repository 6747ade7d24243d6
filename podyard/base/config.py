"""Configuration: a frozen dataclass from a YAML file, then the environment, then flags.

Every duration's name ends in `_s`. An unknown key is an error that names it and its nearest
known neighbour, so that a typo never passes silently.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

C = TypeVar("C")


class ConfigError(ValueError):
    """The configuration does not fit; the text says where and what would."""


@dataclasses.dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of a component's own certificate and the CA that it trusts."""

    ca: str
    cert: str
    key: str


def load(
    cls: type[C],
    file: str | Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    environment_prefix: str = "",
    flags: Mapping[str, Any] | None = None,
) -> C:
    """Builds a `cls`: file < environment < flags.

    Args:
        cls: a dataclass; nested dataclasses, lists, tuples, dicts and optional values are read.
        file: YAML; None for none.
        environment: usually `os.environ`; `PREFIX_FIELD` sets a top-level scalar.
        environment_prefix: such as `PODYARD_KUBELET`.
        flags: already typed values; None values are skipped.

    Raises:
        ConfigError: unreadable file, unknown key, wrong type, missing required key.
    """
    values: dict[str, Any] = {}
    if file is not None:
        try:
            loaded = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError) as error:
            raise ConfigError(f"cannot read the configuration {file}: {error}") from error
        if loaded is not None and not isinstance(loaded, dict):
            raise ConfigError(f"{file}: a mapping is expected, not {type(loaded).__name__}")
        values.update(loaded or {})
    for field in dataclasses.fields(typing.cast("Any", cls)):
        text = (
            (environment or {}).get(f"{environment_prefix}_{field.name}".upper())
            if environment_prefix
            else None
        )
        if text is not None:
            values[field.name] = yaml.safe_load(text)
    values.update({name: value for name, value in (flags or {}).items() if value is not None})
    return build(cls, values, str(file or "configuration"))


def build(cls: type[C], values: Mapping[str, Any], where: str) -> C:
    """Builds a `cls` from plain data; `where` begins the text of an error.

    Raises:
        ConfigError: unknown key, wrong type, missing required key.
    """
    return typing.cast("C", _build(cls, values, where))


def redacted(config: object) -> dict[str, Any]:
    """The configuration as plain data for the start-up log, without the values of secrets."""

    def mask(value: Any, name: str) -> Any:
        if isinstance(value, dict):
            return {key: mask(inner, str(key)) for key, inner in value.items()}
        return "…" if name in {"token", "password", "secret"} and value else value

    return {name: mask(value, name) for name, value in dataclasses.asdict(typing.cast("Any", config)).items()}


def _build(cls: Any, values: Mapping[str, Any], where: str) -> Any:
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for key in values:
        if key not in fields:
            near = difflib.get_close_matches(str(key), fields, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"{where}: unknown key {key!r}{hint}")
    arguments = {key: _convert(hints[key], value, f"{where}: {key}") for key, value in values.items()}
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in arguments:
            raise ConfigError(f"{where}: {name!r} is required")
    return cls(**arguments)


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in inner:
            return None
        options = [option for option in inner if option is not type(None)]
        return _convert(options[0], value, where)
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}: a mapping is expected")
        return _build(hint, value, where)
    if origin in (list, tuple):
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"{where}: a list is expected")
        return origin(_convert(inner[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}: a mapping is expected")
        return {key: _convert(inner[1], item, f"{where}.{key}") for key, item in value.items()}
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is Any or (
        isinstance(hint, type) and isinstance(value, hint) and (hint is bool) == isinstance(value, bool)
    ):
        return value
    name = getattr(hint, "__name__", str(hint))
    raise ConfigError(f"{where}: {name} is expected, not {type(value).__name__} {value!r}")
