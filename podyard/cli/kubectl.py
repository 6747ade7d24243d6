"""`podyard kubectl` and `podyard kubeconfig`: the real kubectl, and what points it at the cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

import click
import yaml

from podyard.cli.cluster import with_engine
from podyard.cli.commands import Scope, pass_scope
from podyard.cluster import adopting
from podyard.cluster.errors import ClusterError, NotFoundError
from podyard.cluster.kubectl import find_kubectl
from podyard.cluster.state import StateDirectory, merged
from podyard.cluster.wording import podyard_on


class _Verbatim(click.Command):
    """A command whose arguments are another program's, but for `--name` in front of them.

    click itself would take the first `--` away.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        name, rest = leading_name(args)
        if name is not None:
            ctx.obj = Scope(name)
        ctx.params["arguments"] = tuple(rest)
        return []


def leading_name(arguments: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """The cluster that `--name` at the very beginning chooses, if any, and kubectl's own words.

    Raises:
        click.UsageError: `--name` without a name.
    """
    first, equals, value = (arguments[0] if arguments else "").partition("=")
    if first != "--name":
        return None, arguments
    if equals:
        return value, arguments[1:]
    if len(arguments) < 2:
        raise click.UsageError("Option '--name' requires an argument.")
    return arguments[1], arguments[2:]


def asks_a_cluster(arguments: Sequence[str]) -> bool:
    """False for what kubectl answers by itself: help, its own version, completion, its options."""
    own = list(takewhile(lambda word: word != "--", arguments))
    if not own or own[0] in {"help", "completion", "options"} or not {"-h", "--help"}.isdisjoint(own):
        return False
    return not (own[0] == "version" and not {"--client", "--client=true"}.isdisjoint(own))


@click.command("kubectl", cls=_Verbatim, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def kubectl(scope: Scope, arguments: tuple[str, ...]) -> None:
    """Run the real kubectl on this cluster; everything after the word, but a leading --name, is its.

    \b
    podyard kubectl get nodes -o wide
    podyard kubectl --name other apply -f pod.yaml
    """
    binary = find_kubectl()
    environment = {**os.environ, "KUBECONFIG": kubeconfig_for(scope.name, arguments)}
    sys.stdout.flush()
    # Replaces this process, so that signals, the terminal and the exit code are kubectl's own.
    os.execve(binary, ["kubectl", *arguments], environment)


def kubeconfig_for(name: str, arguments: Sequence[str]) -> str:
    """The file that points kubectl at the cluster; an empty one where there is none and none is asked.

    Raises:
        NotFoundError: there is no cluster, and the words ask one.
    """
    if not asks_a_cluster(arguments) and not StateDirectory(name).kubeconfig.exists():
        return os.devnull
    return str(_existing(name).kubeconfig)


@click.command("kubeconfig")
@click.option(
    "--merge", is_flag=True, help="Add it to ~/.kube/config (or the file that KUBECONFIG names) and use it."
)
@pass_scope
def kubeconfig(scope: Scope, merge: bool) -> None:
    """Print the administrator's kubeconfig, certificates embedded.

    \b
    podyard kubeconfig > cluster.yaml
    podyard kubeconfig --merge && kubectl get nodes
    """
    state = _existing(scope.name)
    if not merge:
        click.echo(state.kubeconfig.read_text(encoding="utf-8"), nl=False)
        return
    config = yaml.safe_load(state.kubeconfig.read_text(encoding="utf-8"))
    target = Path(os.environ.get("KUBECONFIG", "").split(os.pathsep)[0] or Path.home() / ".kube" / "config")
    _write(target, merged(_read(target), config))
    click.echo(f"{target}: context {config['current-context']} is the current one", err=True)


def _existing(name: str) -> StateDirectory:
    state = StateDirectory(name)
    if not adopting.is_known(name):
        with suppress(ClusterError):  # no engine, no cluster: what is here decides
            with_engine(lambda engine: adopting.adopt(engine, name))
    if not state.kubeconfig.exists():
        raise NotFoundError(f"there is no cluster {name!r} on this host", hint=f"{podyard_on(name)} up")
    return state


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except yaml.YAMLError as error:
        raise ClusterError(f"{path} is no YAML: {error}", hint="mend it first; it was not touched") from error
    if content is not None and not isinstance(content, dict):
        raise ClusterError(f"{path} is no kubeconfig", hint="mend it first; it was not touched")
    return content


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = path.with_name(f"{path.name}.podyard")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        yaml.safe_dump(content, file, sort_keys=False)
    os.replace(partial, path)
