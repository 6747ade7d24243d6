"""Whose a test cluster is, so that the next run can remove what a killed one left.

The owner is a process of this machine: its boot, its number and the moment it began. Numbers are used
again, moments are not.
"""

from __future__ import annotations

import os
from pathlib import Path

LABEL_OWNER = "podyard.testing.owner"
_PROC = Path("/proc")


def own(pid: int | None = None, proc: Path = _PROC) -> str:
    """The mark of a process, by default this one: `BOOT/PID/START`; empty where /proc does not tell."""
    number = os.getpid() if pid is None else pid
    try:
        boot = (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        # After the name, which may have blanks and brackets: state is field 3, the start field 22 (proc(5)).
        fields = (proc / str(number) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return ""
    return f"{boot}/{number}/{fields[19]}"


def is_gone(owner: str, proc: Path = _PROC) -> bool:
    """Whether a mark's process has surely ended: of another machine nobody here can tell."""
    boot, _, rest = owner.partition("/")
    number, _, _ = rest.partition("/")
    here = own(proc=proc).partition("/")[0]
    if not here or not number.isdecimal():
        return False
    if boot != here:
        # An earlier boot of this machine, or another machine that shares the engine.
        return False
    return own(int(number), proc) != owner
