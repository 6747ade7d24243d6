"""What is said of words that podyard does not know: what is spelt alike, or that they are kubectl's."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Collection, Iterable, Sequence

import click

# kubectl's commands; without `version`, which who asks podyard means of podyard.
_VERBS = """
    annotate api-resources api-versions apply attach auth autoscale certificate cluster-info config cordon cp
    create debug delete describe diff drain edit events exec explain expose get kustomize label logs patch
    port-forward proxy replace rollout run scale set taint top uncordon wait
"""
KUBECTL_VERBS = frozenset(_VERBS.split())


class SuggestingGroup(click.Group):
    """A group that names the commands that an unknown one may have been meant for."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        # Not every click suggests, and none from commands that are imported when they are called.
        known = word.startswith("-") or word in self.list_commands(ctx)
        if not known and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command {word!r}.{alike(word, self.shown_commands(ctx))}", ctx)
        return super().resolve_command(ctx, args)

    def shown_commands(self, ctx: click.Context) -> Iterable[str]:
        """Names of the commands that the help lists."""
        return self.list_commands(ctx)


def alike(word: str, known: Iterable[str]) -> str:
    """A sentence, after a blank, that names what a word may have been meant for; empty for nothing."""
    found = [repr(name) for name in difflib.get_close_matches(word, sorted(known))]
    if not found:
        return ""
    return f" Did you mean {found[0]}?" if len(found) == 1 else f" (Did you mean one of: {', '.join(found)}?)"


def meant_for_kubectl(error: click.UsageError, words: Sequence[str], own: Collection[str]) -> str:
    """The command line that hands words to kubectl, where an error says that they were meant for it.

    Args:
        error: what podyard had against them.
        words: of the command line, after `podyard`.
        own: podyard's commands.

    Returns:
        Empty where nothing looks like kubectl.
    """
    first = words[0] if words else ""
    named = 2 if first == "--name" else 1 if first.startswith("--name=") else 0
    chosen, rest = words[:named], words[named:]
    verb = next((word for word in rest if word in own or word in KUBECTL_VERBS), "")
    if verb not in KUBECTL_VERBS:
        return ""
    # Of a command that both have, podyard's is meant, unless it has options that podyard's has not. Nobody
    # but a container means podyard's `run`.
    if verb in own and verb != "run" and not isinstance(error, click.NoSuchOption):
        return ""
    return shlex.join(["podyard", *chosen, "kubectl", *rest])
