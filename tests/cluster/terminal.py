"""A program on a terminal of its own, as a person has it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence

_DEADLINE_S = 60.0


class Terminal:
    """Runs a command on a pseudo-terminal.

    Args:
        rows, columns: of its window.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *, rows: int = 40, columns: int = 100
    ) -> None:
        self._output = b""
        self._code: int | None = None
        main, other = pty.openpty()
        self._file = main
        self._size(rows, columns)
        self.pid = os.posix_spawn(
            _which(command[0], environment),
            list(command),
            dict(environment),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.ttyname(other), os.O_RDWR, 0),
                (os.POSIX_SPAWN_DUP2, 0, 1),
                (os.POSIX_SPAWN_DUP2, 0, 2),
                (os.POSIX_SPAWN_CLOSE, main),
            ],
            setsid=True,
        )
        os.close(other)

    def resize(self, rows: int, columns: int) -> None:
        """Changes the window's size; the program is told, as a terminal does."""
        self._size(rows, columns)
        os.kill(self.pid, signal.SIGWINCH)

    def _size(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._file, text.encode())

    def expect(self, pattern: str) -> str:
        """Reads until the pattern has come; answers what matched and drops all up to there."""
        end_s = time.monotonic() + _DEADLINE_S
        while True:
            found = re.search(pattern.encode(), self._output)
            if found:
                self._output = self._output[found.end() :]
                return found.group().decode()
            left_s = end_s - time.monotonic()
            assert left_s > 0, f"no {pattern!r} in {self._output!r}"
            self._read(left_s)

    def _read(self, timeout_s: float) -> bool:
        if not select.select([self._file], [], [], timeout_s)[0]:
            return True
        try:
            part = os.read(self._file, 65536)
        except OSError:  # the other side is closed
            part = b""
        self._output += part
        return bool(part)

    def wait(self) -> int:
        """The program's exit code."""
        while self._code is None:
            if not self._read(_DEADLINE_S):
                self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code

    def close(self) -> None:
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._file)


def _which(program: str, environment: Mapping[str, str]) -> str:
    import shutil

    found = shutil.which(program, path=environment["PATH"])
    assert found, f"{program} is not installed"
    return found
