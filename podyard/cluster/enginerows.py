"""What the engine's answers mean, and what it is asked with: between its rows and our records. Pure."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from podyard.cluster.plan import ObservedContainer
from podyard.cluster.roles import File
from podyard.cluster.spec import LABEL_CLUSTER, LABEL_DEFINITION, LABEL_ROLE, Port


def subnets(network: Mapping[str, Any]) -> list[str]:
    """Subnets of a network, as the engine lists or inspects it."""
    return [pool["Subnet"] for pool in (network["IPAM"].get("Config") or ()) if pool.get("Subnet")]


def from_list(row: Mapping[str, Any]) -> ObservedContainer:
    """A container as the engine lists it."""
    networks = row["NetworkSettings"]["Networks"] or {}
    return ObservedContainer(
        name=row["Names"][0].lstrip("/"),
        role=row["Labels"].get(LABEL_ROLE, ""),
        state=row["State"],
        image_id=row["ImageID"],
        definition=row["Labels"].get(LABEL_DEFINITION, ""),
        addresses={name: network.get("IPAddress", "") for name, network in networks.items()},
    )


def by_cluster(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[ObservedContainer]]:
    """Containers as the engine lists them, all with the label of a cluster; the registry is no cluster's."""
    found: dict[str, list[ObservedContainer]] = {}
    for row in rows:
        if row["Labels"][LABEL_CLUSTER]:
            found.setdefault(row["Labels"][LABEL_CLUSTER], []).append(from_list(row))
    return found


def from_inspect(row: Mapping[str, Any]) -> ObservedContainer:
    """A container as the engine shows it alone, with the time it was started."""
    labels = row["Config"]["Labels"] or {}
    networks = row["NetworkSettings"]["Networks"] or {}
    return ObservedContainer(
        name=row["Name"].lstrip("/"),
        role=labels.get(LABEL_ROLE, ""),
        state=row["State"]["Status"],
        image_id=row["Image"],
        definition=labels.get(LABEL_DEFINITION, ""),
        addresses={name: network.get("IPAddress", "") for name, network in networks.items()},
        started_at=row["State"].get("StartedAt", ""),
    )


def bindings(ports: Iterable[Port]) -> dict[str, list[tuple[str, int]]]:
    """Container port -> where the engine is to publish it, which may be at several places."""
    bound: dict[str, list[tuple[str, int]]] = {}
    for port in ports:
        bound.setdefault(f"{port.inside}/{port.protocol}", []).append((port.address, port.outside))
    return bound


def archive_of(files: Iterable[File]) -> bytes:
    """A tar of files with absolute paths, their folders (0755, pki 0700) before them."""
    buffer = io.BytesIO()
    folders: set[str] = set()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for file in files:
            for parent in reversed(Path(file.path).parents[:-1]):
                # Folders directly below the root are the image's.
                if len(parent.parts) > 2 and str(parent) not in folders:
                    folders.add(str(parent))
                    folder = tarfile.TarInfo(str(parent).lstrip("/"))
                    folder.type, folder.mode = tarfile.DIRTYPE, 0o700 if parent.name == "pki" else 0o755
                    tar.addfile(folder)
            member = tarfile.TarInfo(file.path.lstrip("/"))
            member.size, member.mode = len(file.content), file.mode
            tar.addfile(member, io.BytesIO(file.content))
    return buffer.getvalue()


def published(row: Mapping[str, Any]) -> frozenset[Port]:
    """The ports that a container, as `from_inspect` has it, was told to publish."""
    found = set()
    for inside, places in (row["HostConfig"].get("PortBindings") or {}).items():
        number, _, protocol = inside.partition("/")
        for place in places or ():
            if place.get("HostPort"):
                found.add(Port(int(number), int(place["HostPort"]), protocol, place.get("HostIp", "")))
    return frozenset(found)
