"""`podyard up --config FILE`: a cluster as a YAML document.

Everything is looked at before anything is made, and all mistakes are told together, each with its path and
what is allowed, in the API's own words where the API has the same field. What the file does not say has its
default. Pure but for `read`, which gives the certificates that the file names.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from podyard.api import names, yaml_json
from podyard.api.errors import duplicate, invalid, not_supported, required
from podyard.api.node_labels import DEFAULT_LABELS
from podyard.api.types import StatusCause, Taint
from podyard.api.validation_meta import labels as label_causes
from podyard.api.validation_node import taints as taint_causes
from podyard.base import pki
from podyard.cluster import publishing
from podyard.cluster.enginehost import LOOPBACK
from podyard.cluster.errors import SpecError
from podyard.cluster.flags import FLAGS, Flag
from podyard.cluster.settings import Settings
from podyard.cluster.spec import MAX_NODES, NodeOptions, NodeTaint, Port, Publication, name_problem

API_VERSION = "podyard.io/v1alpha1"
KIND = "Cluster"

_ETCD_MEMBERS = (1, 3, 5)
_MOST_OF_A_ROLE = 5
# The API's own words.
(_NO_ADDRESS,) = names.ip_problems("")
_KUBELET_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_UPSTREAMS_DOMAINS = ("kubernetes.io", "k8s.io")


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """What a file says; None for what it leaves open."""

    name: str | None
    nodes: int | None
    settings: Settings


def parse(data: bytes | str, *, where: str, read: Callable[[str], bytes]) -> ClusterFile:
    """Reads a cluster file.

    Args:
        where: the file's name, for messages.
        read: the content of a file that this one names.

    Raises:
        SpecError: with all that is wrong, a line each.
    """
    try:
        document = yaml_json.parse(data)
        several = yaml_json.documents(data) > 1
    except yaml_json.YamlError as error:
        raise SpecError(f"{where} is no YAML: {error}", hint="mend it; nothing was made") from None
    if several:
        raise SpecError(
            f"{where} holds several documents",
            hint="a file is one cluster: take all from the second --- away",
        )
    if document.value is not None and not isinstance(document.value, dict):
        raise SpecError(f"{where} holds no mapping", hint="podyard up --help shows such a file")
    reader = _Reader()
    if document.duplicates:
        reader.lines.append(document.duplicates.splitlines()[-1].strip())
    found = _cluster(reader, document.value, read)
    if reader.lines:
        listed = "\n".join(f"  {line}" for line in dict.fromkeys(reader.lines))
        raise SpecError(
            f"{where} is not as it should be:\n{listed}",
            hint="mend the file; nothing was made or changed. podyard up --help shows one",
        )
    return found


class _Reader:
    """Takes values out of plain data and keeps what is wrong with them."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, causes: Iterable[StatusCause]) -> None:
        self.lines += [f"{cause.field}: {cause.message}" for cause in causes]

    def mapping(self, value: Any, path: str, allowed: Iterable[str]) -> Mapping[str, Any]:
        """The value as a mapping with these keys only; an empty one where it is none."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.add([invalid(path, value, "must be a mapping")])
            return {}
        known = sorted(allowed)
        for key in value:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, 1)
                meant = f"; did you mean {near[0]}?" if near else ""
                self.lines.append(f"{_join(path, key)}: unknown field; known here: {', '.join(known)}{meant}")
        return {key: inner for key, inner in value.items() if key in known}

    def items(self, value: Any, path: str) -> list[tuple[str, Any]]:
        """The value as a list: each item with its path."""
        if value is None:
            return []
        if not isinstance(value, list):
            self.add([invalid(path, value, "must be a list")])
            return []
        return [(f"{path}[{index}]", item) for index, item in enumerate(value)]

    def text(self, value: Any, path: str, default: str = "") -> str:
        if value is None or isinstance(value, str):
            return default if value is None else value
        self.add([invalid(path, value, "must be a string; put it in quotes")])
        return default

    def number(self, value: Any, path: str, default: int, *, least: int, most: int) -> int:
        if value is None:
            return default
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        detail = f"must be a whole number from {least} to {most}" if most > least else f"must be {least}"
        self.add([invalid(path, value, detail)])
        return default

    def texts(self, value: Any, path: str) -> dict[str, str]:
        """A mapping of texts, of whatever keys."""
        if value is None or isinstance(value, dict):
            return {key: self.text(inner, f"{path}.{key}") for key, inner in (value or {}).items()}
        self.add([invalid(path, value, "must be a mapping")])
        return {}


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else str(key)


def _cluster(reader: _Reader, value: Any, read: Callable[[str], bytes]) -> ClusterFile:
    keys = ("apiVersion", "kind", "name", "nodes", "controlPlane", "components", "publish", "extraCAs")
    top = reader.mapping(value, "", keys)
    for key, only in (("apiVersion", API_VERSION), ("kind", KIND)):
        if key not in top:
            reader.add([required(key, f"must be {only}")])
        elif top[key] != only:
            reader.add([not_supported(key, top[key], [only])])
    name = reader.text(top.get("name"), "name") or None
    problem = "" if name is None else name_problem(name)
    if problem:
        reader.add([invalid("name", name, problem)])
    nodes, options = _nodes(reader, top.get("nodes"))
    settings = _control_plane(reader, top.get("controlPlane"))
    settings = _components(reader, top.get("components"), settings)
    return ClusterFile(
        name=name,
        nodes=nodes,
        settings=replace(
            settings,
            node_options=options,
            publish=_publish(reader, top.get("publish"), nodes),
            extra_cas=_extra_cas(reader, top.get("extraCAs"), read),
        ),
    )


def _nodes(reader: _Reader, value: Any) -> tuple[int | None, tuple[NodeOptions, ...]]:
    if value is None:
        return None, ()
    if not isinstance(value, list):
        return reader.number(value, "nodes", 0, least=0, most=MAX_NODES), ()
    found: list[NodeOptions] = []
    for path, item in reader.items(value, "nodes"):
        entry = reader.mapping(item, path, ("count", "labels", "taints"))
        count = reader.number(entry.get("count"), f"{path}.count", 1, least=0, most=MAX_NODES)
        labels = _labels(reader, entry.get("labels"), f"{path}.labels")
        found += [NodeOptions(labels, _taints(reader, entry.get("taints"), f"{path}.taints"))] * count
    if len(found) > MAX_NODES:
        reader.add([invalid("nodes", len(found), f"must be {MAX_NODES} at most, all counts together")])
    return len(found), tuple(found)


def _labels(reader: _Reader, value: Any, path: str) -> tuple[tuple[str, str], ...]:
    labels = reader.texts(value, path)
    reader.add(label_causes(labels, path))
    refused = [key for key in labels if not _kubelet_may_set(key)]
    for key in refused:
        detail = (
            "a node cannot give itself this label: of kubernetes.io and k8s.io it may have those of "
            f"{' and '.join(_KUBELET_DOMAINS)}, and {', '.join(sorted(DEFAULT_LABELS))}; "
            "podyard kubectl label nodes gives any"
        )
        reader.add([invalid(path, key, detail)])
    return tuple(sorted(labels.items()))


def _kubelet_may_set(key: str) -> bool:
    """Whether a kubelet may give its own node a label.

    Source: kubelet's check of --node-labels, which agrees with the NodeRestriction admission.
    """
    domain = key.partition("/")[0] if "/" in key else ""

    def within(domains: Iterable[str]) -> bool:
        return any(domain == one or domain.endswith(f".{one}") for one in domains)

    return not within(_UPSTREAMS_DOMAINS) or within(_KUBELET_DOMAINS) or key in DEFAULT_LABELS


def _taints(reader: _Reader, value: Any, path: str) -> tuple[NodeTaint, ...]:
    found = []
    for at, item in reader.items(value, path):
        entry = reader.mapping(item, at, ("key", "value", "effect"))
        key, text, effect = (
            reader.text(entry.get(name), f"{at}.{name}") for name in ("key", "value", "effect")
        )
        found.append(NodeTaint(key, effect, text))
    reader.add(taint_causes([Taint(key=t.key, value=t.value, effect=t.effect) for t in found], path))
    return tuple(found)


def _control_plane(reader: _Reader, value: Any) -> Settings:
    entry = reader.mapping(value, "controlPlane", ("etcd", "apiservers", "schedulers", "controllerManagers"))
    etcd = entry.get("etcd")
    if etcd is None:
        etcd = Settings().etcd_members
    if not isinstance(etcd, int) or etcd is True or etcd not in _ETCD_MEMBERS:
        allowed = [str(number) for number in _ETCD_MEMBERS]
        reader.add([not_supported("controlPlane.etcd", etcd, allowed)])
        etcd = Settings().etcd_members
    # Several would each call itself the only endpoint of the Service kubernetes, and might give one
    # address twice.
    reader.number(entry.get("apiservers"), "controlPlane.apiservers", 1, least=1, most=1)

    def count(name: str) -> int:
        return reader.number(entry.get(name), f"controlPlane.{name}", 1, least=1, most=_MOST_OF_A_ROLE)

    return Settings(
        etcd_members=etcd, schedulers=count("schedulers"), controller_managers=count("controllerManagers")
    )


def _components(reader: _Reader, value: Any, settings: Settings) -> Settings:
    flags: dict[str, dict[str, Any]] = {}
    for component, told in reader.mapping(value, "components", FLAGS).items():
        path = f"components.{component}"
        for name, given in reader.mapping(told, path, FLAGS[component]).items():
            flag = FLAGS[component][name]
            problem = _flag_problem(flag, given)
            if problem:
                reader.add([problem(f"{path}.{name}")])
            elif flag.setting:
                # One truth: the failure verbs say what to expect from it.
                settings = replace(settings, **{flag.setting: flag.kind(given)})
            else:
                flags.setdefault(component, {})[name] = given
    return replace(settings, flags=flags)


def _flag_problem(flag: Flag, given: Any) -> Callable[[str], StatusCause] | None:
    if flag.choices:
        fits = given in flag.choices
        return None if fits else lambda path: not_supported(path, given, flag.choices)
    if flag.kind in (int, float):
        kinds = (int,) if flag.kind is int else (int, float)
        detail = ("must be a whole number" if flag.kind is int else "must be a number") + (
            "" if flag.least is None else f" of at least {flag.least:g}"
        )
        fits = isinstance(given, kinds) and not isinstance(given, bool)
        fits = fits and (flag.least is None or given >= flag.least)
        return None if fits else lambda path: invalid(path, given, detail)
    detail = "must be true or false" if flag.kind is bool else "must be a string that is not empty"
    fits = isinstance(given, flag.kind) and given != ""
    return None if fits else lambda path: invalid(path, given, detail)


def _publish(reader: _Reader, value: Any, nodes: int | None) -> tuple[Publication, ...]:
    found: list[Publication] = []
    for path, item in reader.items(value, "publish"):
        keys = ("node", "containerPort", "hostPort", "protocol", "listenAddress")
        entry = reader.mapping(item, path, keys)
        node = reader.number(
            entry.get("node"), f"{path}.node", 1, least=1, most=MAX_NODES if nodes is None else max(nodes, 1)
        )
        protocol = reader.text(entry.get("protocol"), f"{path}.protocol", "TCP")
        if protocol not in ("TCP", "UDP"):
            reader.add([not_supported(f"{path}.protocol", protocol, ("TCP", "UDP"))])
        told = reader.text(entry.get("listenAddress"), f"{path}.listenAddress", LOOPBACK)
        address = publishing.address_of(told)
        if address is None:
            reader.add([invalid(f"{path}.listenAddress", told, _NO_ADDRESS)])
            address = LOOPBACK
        inside, outside = (_port(reader, entry, path, name) for name in ("containerPort", "hostPort"))
        port = Port(inside, outside, protocol.lower(), address)
        if outside and publishing.clash(port, [other.port for other in found]) is not None:
            reader.add([duplicate(f"{path}.hostPort", str(port))])
        found.append(Publication(node, port))
    return tuple(found)


def _port(reader: _Reader, entry: Mapping[str, Any], path: str, name: str) -> int:
    at = f"{path}.{name}"
    if name not in entry:
        reader.add([required(at)])
        return 0
    return reader.number(entry[name], at, 0, least=1, most=65535)


def _extra_cas(reader: _Reader, value: Any, read: Callable[[str], bytes]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for path, item in reader.items(value, "extraCAs"):
        name = reader.text(item, path)
        if not name:
            reader.add([required(path, "a file with certificates in PEM")])
            continue
        try:
            certificates = pki.certificates_of(read(name))
        except OSError as error:
            reader.add([invalid(path, name, f"cannot be read: {error.strerror or error}")])
            continue
        except ValueError:
            certificates = []
        if not certificates:
            reader.add([invalid(path, name, "must be a file with certificates in PEM")])
        found.update(dict.fromkeys(certificates))
    return tuple(found)
