"""What holds a machine back after a failure verb, and what a user is told to expect. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from podyard.cluster.plan import ObservedContainer

RUNNING = "running"
PAUSED = "paused"

# Verbs that undo others; all else breaks something.
WAYS_BACK = frozenset({"start", "resume", "heal"})


@dataclass(frozen=True, slots=True)
class Condition:
    """How a machine is.

    Attributes:
        state: in the engine's words.
        cut: whether `partition` holds.
    """

    state: str
    cut: bool = False

    def held_back(self) -> tuple[str, str] | None:
        """Why it does not do its work, and the verb that mends this; None where nothing is in its way."""
        if self.state == PAUSED:
            return "it is frozen", "resume"
        if self.state != RUNNING:
            return f"it does not run (it is {self.state})", "start"
        return ("it is cut off", "heal") if self.cut else None


@dataclass(frozen=True, slots=True)
class Machine:
    """What words about a machine need: what it is, and how patient its cluster is with nodes."""

    node: bool
    grace_s: float
    toleration_s: float


def cut_now(container: ObservedContainer, recorded: str) -> bool:
    """Whether a recorded cut still holds: the rules go with the container's network, when it starts anew.

    Args:
        recorded: when it had started, as it was cut off; empty for never.
    """
    return bool(recorded) and recorded == container.started_at


def outlook(verb: str, before: Condition, after: Condition, machine: Machine) -> str:
    """What a verb has done and what comes of it, for the user to read. Without what still holds it back."""
    if before == after:
        return _nothing_done(verb, after)
    if verb in WAYS_BACK:
        if machine.node:
            return "Ready within about 15 s; pods that were evicted meanwhile vanish, nothing moves back"
        return "it takes up its work where the store says it stands"
    if machine.node:
        return (
            f"NotReady in about {machine.grace_s:g} s, eviction {machine.toleration_s:g} s later; "
            "watch: podyard kubectl get nodes,pods -o wide -w"
        )
    return {
        "kill": "nothing supervises it now: it stays dead until `start` or `up`",
        "stop": "it stays stopped until `start` or `up`",
        "pause": "its connections stay open and silent; peers go to another of its kind, if any",
        "partition": "its connections stay half open; peers find out by their keepalives",
    }[verb]


def _nothing_done(verb: str, condition: Condition) -> str:
    already = {
        "kill": f"it did not run (it is {condition.state}); nothing to do",
        "stop": f"it did not run (it is {condition.state}); nothing to do",
        "pause": "it was frozen already; nothing to do",
        "partition": "it was cut off already; nothing to do",
        "start": "it runs already; nothing to do",
        "resume": "it was not frozen; nothing to do",
        "heal": "it was not cut off; nothing to do",
    }
    return already[verb]
