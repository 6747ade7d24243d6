"""From the command line and a cluster file to what is wished: `up`'s and `compose`'s."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from podyard.cli.commands import Scope
from podyard.cluster.errors import SpecError
from podyard.cluster.settings import Settings
from podyard.cluster.spec import MAX_NODES

if TYPE_CHECKING:
    from podyard.cluster.clusterfile import ClusterFile

EXAMPLE = """\
apiVersion: podyard.io/v1alpha1
kind: Cluster
name: lab
nodes:
  - labels: {zone: a}
  - count: 2
    labels: {zone: b}
    taints: [{key: dedicated, value: gpu, effect: NoSchedule}]
controlPlane: {etcd: 3, schedulers: 2}
components:
  scheduler: {log_level: debug}
publish:
  - {node: 1, containerPort: 30080, hostPort: 8080}
extraCAs: [company-ca.crt]
"""


def config_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--config`."""
    option = click.option(
        "--config",
        "config",
        type=click.Path(exists=True, dir_okay=False, allow_dash=True),
        metavar="FILE",
        help="A YAML file that says what the cluster is; - for standard input. Other options win over it.",
    )
    return option(command)


def nodes_option(
    text: str, *, default: int | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option `--nodes`, with the bounds that every cluster has.

    Args:
        text: its help.
        default: shown; None for none.
    """
    return click.option(
        "--nodes",
        type=click.IntRange(0, MAX_NODES),
        metavar="NUMBER",
        default=default,
        show_default=default is not None,
        help=text,
    )


def read_file(path: str) -> ClusterFile:
    """Reads a cluster file; the files that it names lie beside it.

    Raises:
        SpecError: it is not as it should be.
    """
    # Its checks are the API's own, which is a large import.
    from podyard.cluster.clusterfile import parse

    if path == "-":
        folder, data, where = Path(), sys.stdin.buffer.read(), "standard input"
    else:
        folder, data, where = Path(path).parent, Path(path).read_bytes(), path
    return parse(data, where=where, read=lambda name: (folder / name).read_bytes())


def named_by(scope: Scope, file: ClusterFile | None, where: str) -> str:
    """The cluster's name, from the command line or the file.

    Raises:
        SpecError: they contradict each other.
    """
    if file is None or file.name is None:
        return scope.name
    if scope.named and scope.name != file.name:
        raise SpecError(
            f"{where} is for the cluster {file.name!r}, and the command for {scope.name!r}",
            hint="leave --name (and PODYARD_NAME) out, or the name in the file",
        )
    return file.name


def settled(kept: Settings, file: ClusterFile | None) -> Settings:
    """What holds before the options: the file, which is all of the wish, or else what was kept."""
    return kept if file is None else replace(file.settings, labels=kept.labels)
