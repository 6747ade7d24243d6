"""The user's own kubeconfig: a cluster's entries go in by `kubeconfig --merge`, and out by `down`.

Each file is replaced as a whole. What is not the cluster's is kept as it is, though comments go, as with
kubectl itself.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from podyard.cluster.errors import ClusterError
from podyard.cluster.state import StateDirectory

_SECTIONS = ("clusters", "users", "contexts")
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class _Loader(yaml.SafeLoader):
    """Reads a time as the text that it is: written again it would be another."""


_Loader.yaml_implicit_resolvers = {
    first: [row for row in rows if row[0] != _TIMESTAMP]
    for first, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True)
class Merged:
    """What `merge` did.

    Attributes:
        path: the file.
        context: the one that is current now.
        before: the one that was current; empty for none.
    """

    path: Path
    context: str
    before: str


def places(environment: Mapping[str, str]) -> list[Path]:
    """The files that kubectl reads: those that KUBECONFIG names, else the one in the home."""
    named = [Path(word) for word in environment.get("KUBECONFIG", "").split(os.pathsep) if word]
    return named or [Path.home() / ".kube" / "config"]


def merge(state: StateDirectory) -> Merged:
    """Adds a cluster to the first of the user's files and makes its context the current one.

    Raises:
        ClusterError: the file is no kubeconfig; it is not touched.
    """
    config = yaml.safe_load(state.kubeconfig.read_text(encoding="utf-8"))
    path = places(os.environ)[0].absolute()
    before = _current()
    _write(path, merged(_read(path), config))
    # Where `down` looks too, whatever KUBECONFIG says then.
    known = _recorded(state)
    if path not in known:
        state.merged_into.write_text("".join(f"{each}\n" for each in [*known, path]), encoding="utf-8")
    return Merged(path, config["current-context"], before)


def forget(state: StateDirectory) -> list[str]:
    """Takes a cluster out of the user's files, where `merge` had put it; answers what to tell the user."""
    try:
        config = yaml.safe_load(state.kubeconfig.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):
        return []
    told: list[str] = []
    found: dict[Path, dict[str, Any]] = {}
    for path in dict.fromkeys([*_recorded(state), *(each.absolute() for each in places(os.environ))]):
        if path == state.kubeconfig:
            continue  # which goes with all that the host keeps
        try:
            found[path] = _read(path) or {}
        except ClusterError as error:
            told.append(f"{error}; it is left as it is")
        except OSError as error:
            told.append(f"{path} is left as it is: {error.strerror}")
    left = without(list(found.values()), config)
    for (path, content), kept in zip(found.items(), left, strict=True):
        if kept == content:
            continue
        name = config["current-context"]
        try:
            _write(path, kept)
        except OSError as error:
            told.append(f"{path} still has the context {name}: {error.strerror}")
            continue
        line = f"{path}: the context {name} is taken out"
        if kept.get("current-context") != content.get("current-context"):
            line += "; none is current now"
            line += ", kubectl config use-context chooses one" if kept.get("contexts") else ""
        told.append(line)
    return told


def merged(into: dict[str, Any] | None, config: dict[str, Any]) -> dict[str, Any]:
    """`into` (a kubeconfig, None for none) with the entries of `config` added or replaced; all else kept.

    The current context becomes the cluster's, as other tools do that bring up a cluster.
    """
    result: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", **(into or {})}
    for section in _SECTIONS:
        names = {entry["name"] for entry in config[section]}
        kept = [entry for entry in _entries(result, section) if entry.get("name") not in names]
        result[section] = kept + config[section]
    result["current-context"] = config["current-context"]
    return result


def without(files: Sequence[dict[str, Any]], config: dict[str, Any]) -> list[dict[str, Any]]:
    """Kubeconfigs that are read together, without the entries of `config` (which has one of each kind).

    Another cluster may have the same name. Ours has our authority, our user our certificate, our context
    leads from one to the other; a context to which the user has added a namespace is still ours.
    """
    name = config["current-context"]
    authority = config["clusters"][0]["cluster"]["certificate-authority-data"]
    certificate = config["users"][0]["user"]["client-certificate-data"]
    authorities = {
        _inside(entry, "cluster").get("certificate-authority-data")
        for content in files
        for entry in _entries(content, "clusters")
        if entry.get("name") == name
    }
    if authorities != {authority}:
        return list(files)

    def ours(section: str, entry: dict[str, Any]) -> bool:
        if entry.get("name") != name:
            return False
        if section == "clusters":
            return True
        if section == "users":
            return bool(_inside(entry, "user").get("client-certificate-data") == certificate)
        context = _inside(entry, "context")
        return (context.get("cluster"), context.get("user")) == (name, name)

    gone = any(ours("contexts", entry) for content in files for entry in _entries(content, "contexts"))
    result = []
    for content in files:
        kept = dict(content)
        for section in _SECTIONS:
            entries = _entries(content, section)
            if any(ours(section, entry) for entry in entries):
                kept[section] = [entry for entry in entries if not ours(section, entry)]
        if gone and content.get("current-context") == name:
            kept["current-context"] = ""
        result.append(kept)
    return result


def _entries(content: dict[str, Any], section: str) -> list[dict[str, Any]]:
    return [entry for entry in content.get(section) or [] if isinstance(entry, dict)]


def _inside(entry: dict[str, Any], key: str) -> dict[str, Any]:
    found = entry.get(key)
    return found if isinstance(found, dict) else {}


def _current() -> str:
    """The current context: of the first file that has one. Empty for none."""
    for path in places(os.environ):
        with suppress(ClusterError, OSError):
            found = (_read(path) or {}).get("current-context")
            if found:
                return str(found)
    return ""


def _recorded(state: StateDirectory) -> list[Path]:
    with suppress(OSError):
        return [Path(line) for line in state.merged_into.read_text(encoding="utf-8").splitlines()]
    return []


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except FileNotFoundError:
        return None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ClusterError(f"{path} is no YAML: {error}", hint="mend it first; it was not touched") from error
    if content is not None and not isinstance(content, dict):
        raise ClusterError(f"{path} is no kubeconfig", hint="mend it first; it was not touched")
    return content


def _write(path: Path, content: dict[str, Any]) -> None:
    # A link stays one.
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, partial = tempfile.mkstemp(prefix=f"{target.name}.", dir=target.parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            yaml.safe_dump(content, file, sort_keys=False, allow_unicode=True, width=float("inf"))
        if target.exists():
            os.chmod(partial, stat.S_IMODE(target.stat().st_mode))
        os.replace(partial, target)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
