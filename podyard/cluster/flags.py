"""Which flags of the components a user may set for a cluster: pure.

The names are the components' own, those of their configuration (`Config` of each `main.py`). What bring-up
decides (names, addresses, ports, certificates) and what several components must agree on is not among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Flag:
    """What a flag takes.

    Attributes:
        kind: int, float (which takes whole numbers too), bool or str.
        least: of a number; None for any.
        choices: of a text; empty for any.
        setting: the field of `Settings` that keeps it; empty where the component's file alone has it.
    """

    kind: type
    least: float | None = None
    choices: tuple[str, ...] = ()
    setting: str = ""


_LOG_LEVEL = Flag(str, choices=LOG_LEVELS)

# Component as a cluster file names it -> flag.
FLAGS: Mapping[str, Mapping[str, Flag]] = {
    "apiserver": {
        "default_toleration_s": Flag(int, least=0, setting="toleration_s"),
        "etcd_compaction_interval_s": Flag(float, least=1),
        "event_ttl_s": Flag(float, least=1),
        "log_level": _LOG_LEVEL,
    },
    "scheduler": {"scheduler_name": Flag(str), "leader_elect": Flag(bool), "log_level": _LOG_LEVEL},
    "controllerManager": {
        "node_grace_s": Flag(float, least=12, setting="node_grace_s"),
        "leader_elect": Flag(bool),
        "log_level": _LOG_LEVEL,
    },
    "kubelet": {"log_level": _LOG_LEVEL},
    "proxy": {"resolver": Flag(str), "log_level": _LOG_LEVEL},
}
