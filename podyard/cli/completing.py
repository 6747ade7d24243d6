"""What a shell completes besides podyard's own words: names of clusters, nodes, containers; kubectl's words.

Names are from the engine's containers, by label; kubectl's words are its own answer. Where one does not
answer at once there are none: who presses a key is neither kept waiting nor told why.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from podyard.cluster.spec import COMPONENTS, DEFAULT_NAME, NODES, REGISTRY_NAME, Role
from podyard.cluster.wording import counted

if TYPE_CHECKING:
    from podyard.cluster.plan import ObservedContainer

PATIENCE_S = 1.5
_ERROR, _NO_FILES, _ENDINGS, _FOLDERS = 1, 4, 8, 16


def clusters(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of clusters."""
    return [
        CompletionItem(name, help=counted(sum(c.role in NODES for c in containers), "node"))
        for name, containers in sorted(_seen().items())
        if name.startswith(incomplete)
    ]


def nodes(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the cluster's nodes."""
    return _containers(context, incomplete, NODES)


def components(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the other parts of the cluster."""
    return _containers(context, incomplete, COMPONENTS)


def log_sources(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What `logs` takes: any container of the cluster, the registry, or the word `export`."""
    words = {"export": "all of the cluster's into a folder", REGISTRY_NAME: "of all clusters"}
    others = [CompletionItem(word, help=text) for word, text in words.items() if word.startswith(incomplete)]
    return _containers(context, incomplete, tuple(Role)) + others


def kubectl_words(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What kubectl itself offers behind the words so far, of this cluster where it has to ask one."""
    from podyard.cluster.errors import ClusterError
    from podyard.cluster.kubectl import find_kubectl
    from podyard.cluster.state import StateDirectory

    given = context.params["arguments"]
    if given == ("--name",):
        return clusters(context, _, incomplete)
    words = joined((*given, incomplete))
    name = chosen(context)
    try:
        kubeconfig = StateDirectory(name).kubeconfig
        answer = subprocess.run(
            [find_kubectl(), "__complete", *words],
            env={**os.environ, "KUBECONFIG": str(kubeconfig if kubeconfig.exists() else os.devnull)},
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_S,
        ).stdout
    except (ClusterError, OSError, subprocess.SubprocessError):
        return []
    return parsed_words(answer, incomplete)


def joined(words: Sequence[str]) -> list[str]:
    """Words of a command line as bash hands them to a completion, where `--flag=value` is three of them."""
    whole: list[str] = []
    for word in words:
        if whole and whole[-1].startswith("-") and (word == "=" or whole[-1].endswith("=")):
            whole[-1] += word
        else:
            whole.append(word)
    return whole


def parsed_words(answer: str, incomplete: str) -> list[CompletionItem]:
    """What kubectl's `__complete` has said: a line for each word, TAB and its help, then `:` and a number.

    The number is a set of bits: 1 for an error, 4 for "no files", 8 for files with the endings that the lines
    are, 16 for folders. Source: ShellCompDirective of cobra.
    """
    *lines, last = answer.splitlines() or [""]
    number = last.removeprefix(":")
    directive = int(number) if number.isdecimal() else _ERROR
    if directive & _ERROR:
        return []
    if directive & _FOLDERS:
        return [CompletionItem(incomplete, type="dir")]
    if directive & _ENDINGS or not (lines or directive & _NO_FILES):
        return [CompletionItem(incomplete, type="file")]
    found = [line.partition("\t") for line in lines]
    return [CompletionItem(word, help=text) for word, _, text in found]


def _containers(context: click.Context, incomplete: str, roles: Collection[str]) -> list[CompletionItem]:
    """Names as short as they may be; whole ones for who has begun with the cluster's name."""
    cluster = chosen(context)
    own = f"{cluster}-"
    whole = incomplete.startswith(own)
    found = []
    for container in _seen().get(cluster, ()):
        name = container.name if whole else container.name.removeprefix(own)
        if container.role in roles and name.startswith(incomplete):
            found.append((name, container.state))
    return [CompletionItem(name, help=state) for name, state in sorted(found)]


def chosen(context: click.Context) -> str:
    """The cluster that the words so far choose: no command has run yet that would have taken it down."""
    # A `--name` behind the command's word leaves a scope.
    name = getattr(context.obj, "name", None) or context.find_root().params.get("name")
    return str(name or DEFAULT_NAME)


def _seen() -> dict[str, list[ObservedContainer]]:
    """Cluster -> its containers; nothing where that is not to be had at once."""
    answers: list[dict[str, list[ObservedContainer]]] = []

    def look() -> None:
        with suppress(Exception):
            from podyard.cluster import engine

            answers.append(engine.glimpse(PATIENCE_S))

    # The SDK's deadline is one for each question, and finding a host's name has none.
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return answers[0] if answers else {}
