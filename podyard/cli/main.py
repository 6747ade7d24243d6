"""The `podyard` command: its options, and which module has which subcommand.

Subcommands are imported when they are called, and PID 1 of a container (`podyard init`) before anything
else is, so that each process carries only what it uses.
"""

from __future__ import annotations

import importlib
import sys

EPILOG = """\b
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 this host cannot carry a cluster,
4 no such cluster or component, 5 not ready in time, 130 interrupted.
`kubectl` passes on the exit code of kubectl.
"""


def main() -> int:
    """Entry point of the console script; answers the exit code."""
    if sys.argv[1:2] == ["init"]:
        from podyard.base import supervise

        return supervise.main(sys.argv[2:])
    from podyard.cli import commands

    return commands.run()


def load_command(target: str) -> object:
    """The object that `package.module:name` names."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


if __name__ == "__main__":
    sys.exit(main())
