"""`podyard compose`: the same cluster as a compose file, and what runs inside it once."""

from __future__ import annotations

import json

import click

from podyard.base import clock
from podyard.cli import wish
from podyard.cli.commands import Scope, pass_scope
from podyard.cluster import publishing
from podyard.cluster.compose import DEFAULT_PLACEMENT, placement_of, render
from podyard.cluster.composefiles import write_files
from podyard.cluster.settings import Settings
from podyard.cluster.spec import DEFAULT_NODES, ClusterSpec

_nodes = wish.nodes_option(f"How many nodes; default: as the file says, else {DEFAULT_NODES}.")
_subnet = click.option(
    "--subnet", default=DEFAULT_PLACEMENT.subnet, show_default=True, help="The cluster's network, a /22."
)


@click.command("compose")
@wish.config_option
@_nodes
@_subnet
@pass_scope
def compose(scope: Scope, config: str | None, nodes: int | None, subnet: str) -> None:
    """Print a compose file of a cluster like `up`'s, for compose 1.29 or later.

    The same image, names and labels, so the verbs, `status`, `logs` and `kubectl` work on it. `podyard build`
    makes the image.

    \b
    podyard --name lab compose --nodes 3 > lab.yaml
    docker-compose -p lab -f lab.yaml up -d
    podyard --name lab kubectl get nodes
    """
    file = None if config is None else wish.read_file(config)
    name = wish.named_by(scope, file, str(config))
    if nodes is None:
        nodes = file.nodes if file is not None and file.nodes is not None else DEFAULT_NODES
    spec = wish.settled(Settings(), file).applied(ClusterSpec(name=name, nodes=nodes))
    publishing.require_nodes(spec.publish, nodes)
    click.echo(render(spec, placement_of(spec, subnet)), nl=False)


@click.command("compose-files", hidden=True)
@_nodes
@_subnet
@click.option("--settings", default="{}", help="What was told of the cluster, as JSON.")
@pass_scope
def compose_files(scope: Scope, nodes: int | None, subnet: str, settings: str) -> None:
    """Write the files of a compose cluster's containers into their volumes; runs inside one of them."""
    told = Settings.from_plain(json.loads(settings))
    spec = told.applied(ClusterSpec(name=scope.name, nodes=DEFAULT_NODES if nodes is None else nodes))
    for name in write_files(spec, placement_of(spec, subnet), now_s=clock.real_now_s()):
        click.echo(name)
