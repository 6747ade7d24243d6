"""PID 1 of every container: reaps, starts the role's processes, restarts each alone.

`podyard init ROLE` reads the processes from a JSON file (`/etc/podyard/init.json`), written by whoever made
the container. A process that exits is started again after a back-off of 0.5 to 10 s that starts anew once
it has been up for 10 s; the others are not touched. Each line that a process prints goes to stdout behind
its name, so the engine's log has all of them. SIGTERM or SIGINT stops: SIGTERM to every process, SIGKILL to
what is left after the grace, exit 0.

Invariants: nothing here blocks (a reader of our stdout that is stuck loses lines, it does not stop the
processes), and every child of a dead process is reaped. The standard library only and few modules of it:
this runs in every container and starts before everything else.
"""

from __future__ import annotations

import errno
import json
import os
import selectors
import signal
import sys
import time
from typing import NamedTuple

DEFAULT_FILE = "/etc/podyard/init.json"
BACKOFF_BASE_S = 0.5
BACKOFF_CAP_S = 10.0
# A process that was up for this long has recovered: its next failure counts as the first.
STABLE_S = 10.0
# Below the ten seconds that the engine waits before it kills PID 1.
STOP_GRACE_S = 8.0
MAX_LINE_BYTES = 16 * 1024
MAX_BACKLOG_BYTES = 1024 * 1024
_READ_BYTES = 64 * 1024
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class Process(NamedTuple):
    """One process of the role.

    `once`: it is done when it has exited with 0, and is started again only after a failure. `after`: names
    of `once` processes that must be done first.
    """

    name: str
    argv: tuple[str, ...]
    once: bool = False
    after: tuple[str, ...] = ()


class SpecError(ValueError):
    """The file does not describe processes; the text says why."""


def load(path: str) -> list[Process]:
    """Reads `{"processes": [{"name", "argv", "once"?, "after"?}]}`.

    Raises:
        SpecError: unreadable, not of this form, a name twice, or `after` names no `once` process.
    """
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        processes = [
            Process(row["name"], tuple(row["argv"]), row.get("once", False), tuple(row.get("after", ())))
            for row in content["processes"]
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SpecError(f"{path}: {type(error).__name__}: {error}") from error
    names = [process.name for process in processes]
    if not names or len(set(names)) != len(names):
        raise SpecError(f"{path}: one or more processes with different names are needed")
    once = {process.name for process in processes if process.once}
    for process in processes:
        if not process.argv or not all(isinstance(word, str) for word in process.argv):
            raise SpecError(f"{path}: {process.name} has no command")
        if not set(process.after) <= once:
            raise SpecError(f"{path}: {process.name} waits for something that never finishes")
    return processes


def backoff_s(failures: int) -> float:
    """Seconds to wait before the start that follows the `failures`-th failure in a row (1 is the first)."""
    return min(BACKOFF_BASE_S * 2.0 ** min(failures - 1, 30), BACKOFF_CAP_S)


def describe_exit(status: int) -> str:
    """A wait status in words."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return f"was killed by {signal.Signals(number).name}"
        except ValueError:
            return f"was killed by signal {number}"
    return f"exited with {os.waitstatus_to_exitcode(status)}"


class Output:
    """Lines on their way to stdout; bounded, never blocking."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._backlog = bytearray()
        self._dropped = 0
        os.set_blocking(fd, False)

    @property
    def pending(self) -> bool:
        return bool(self._backlog)

    def line(self, name: bytes, text: bytes) -> None:
        if len(self._backlog) > MAX_BACKLOG_BYTES:
            self._dropped += 1
            return
        if self._dropped:
            self._backlog += b"init | %d lines were dropped: nobody reads them\n" % self._dropped
            self._dropped = 0
        self._backlog += name + b" | " + text + b"\n"

    def flush(self) -> None:
        """Writes what the reader takes now."""
        try:
            while self._backlog:
                del self._backlog[: os.write(self.fd, self._backlog)]
        except BlockingIOError:
            return
        except OSError:
            # The reader is gone; there is nowhere to report it.
            self._backlog.clear()


class Child:
    """A process across its restarts, and the pipe that all of its lives write to."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.pid = 0
        self.failures = 0
        self.started_s = 0.0
        self.due_s = 0.0
        self.done = False
        self._partial = bytearray()
        self.read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.read_fd, False)

    def start(self, now_s: float) -> None:
        """Raises OSError when the command cannot be run."""
        self.started_s = now_s
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, self.write_fd, 1),
            (os.POSIX_SPAWN_DUP2, self.write_fd, 2),
        ]
        self.pid = os.posix_spawnp(
            self.process.argv[0],
            self.process.argv,
            os.environ,
            file_actions=actions,
            setpgroup=0,
            setsigdef=_IGNORED_BY_PYTHON,
            setsigmask=(),
        )

    def exited(self, *, success: bool, now_s: float) -> None:
        """Records the end and sets when it is due again."""
        self.pid = 0
        if self.process.once and success:
            self.done = True
            return
        self.failures = 1 if now_s - self.started_s >= STABLE_S else self.failures + 1
        self.due_s = now_s + backoff_s(self.failures)

    def copy_lines(self, output: Output, *, flush_partial: bool = False) -> None:
        name = self.process.name.encode()
        # Bounded, so that a process that prints without end cannot keep us here.
        for _ in range(16):
            try:
                data = os.read(self.read_fd, _READ_BYTES)
            except BlockingIOError:
                break
            self._partial += data
            *lines, rest = self._partial.split(b"\n")
            for line in lines:
                for start in range(0, max(len(line), 1), MAX_LINE_BYTES):
                    output.line(name, bytes(line[start : start + MAX_LINE_BYTES]))
            self._partial = rest
            while len(self._partial) > MAX_LINE_BYTES:
                output.line(name, bytes(self._partial[:MAX_LINE_BYTES]))
                del self._partial[:MAX_LINE_BYTES]
        if flush_partial and self._partial:
            output.line(name, bytes(self._partial))
            self._partial.clear()


class Supervisor:
    """The loop around the children of one role."""

    def __init__(self, processes: list[Process], output: Output) -> None:
        self._children = [Child(process) for process in processes]
        self._output = output
        self._stop_requested = False
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # poll, not epoll: stdout may be a plain file, which epoll refuses.
        self._selector = selectors.PollSelector()

    def run(self) -> int:
        """Returns the exit code once a signal has asked to stop and the children are gone."""
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        for child in self._children:
            self._selector.register(child.read_fd, selectors.EVENT_READ, child)
        while not self._stop_requested:
            self._start_due()
            self._wait(self._next_due_s())
            self._reap()
        self._stop_all()
        return 0

    def _on_stop(self, *_: object) -> None:
        self._stop_requested = True

    def _say(self, text: str) -> None:
        self._output.line(b"init", text.encode())

    def _waits(self, child: Child) -> bool:
        done = {other.process.name for other in self._children if other.done}
        return child.pid == 0 and not child.done and set(child.process.after) <= done

    def _next_due_s(self) -> float | None:
        return min((child.due_s for child in self._children if self._waits(child)), default=None)

    def _start_due(self) -> None:
        now_s = time.monotonic()
        for child in self._children:
            if not self._waits(child) or child.due_s > now_s:
                continue
            try:
                child.start(now_s)
            except OSError as error:
                child.exited(success=False, now_s=now_s)
                self._say(
                    f"{child.process.name} cannot be started: {error}; "
                    f"next try in {child.due_s - now_s:.1f} s"
                )
            else:
                self._say(f"{child.process.name} started, pid {child.pid}")

    def _wait(self, until_s: float | None) -> None:
        """Copies lines until a signal, the time, or for one round of events."""
        timeout_s = None if until_s is None else max(until_s - time.monotonic(), 0.0)
        self._output.flush()
        if self._output.pending:
            self._selector.register(self._output.fd, selectors.EVENT_WRITE)
        try:
            ready = self._selector.select(timeout_s)
        finally:
            if self._output.pending:
                self._selector.unregister(self._output.fd)
        for key, _ in ready:
            if isinstance(key.data, Child):
                key.data.copy_lines(self._output)
            elif key.fd == self._wake_read:
                os.read(self._wake_read, 4096)

    def _reap(self) -> None:
        """Takes every dead child, ours and adopted ones."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for child in self._children:
                if child.pid == pid:
                    self._on_exit(child, status)

    def _on_exit(self, child: Child, status: int) -> None:
        now_s = time.monotonic()
        child.copy_lines(self._output, flush_partial=True)
        lasted_s = now_s - child.started_s
        child.exited(success=os.waitstatus_to_exitcode(status) == 0, now_s=now_s)
        next_step = ""
        if not child.done and not self._stop_requested:
            next_step = f"; next start in {child.due_s - now_s:.1f} s"
        self._say(f"{child.process.name} {describe_exit(status)} after {lasted_s:.1f} s{next_step}")

    def _signal_all(self, number: signal.Signals) -> None:
        for child in self._children:
            if child.pid:
                try:
                    os.kill(child.pid, number)
                except OSError as error:
                    if error.errno != errno.ESRCH:
                        self._say(f"{child.process.name}: {error}")

    def _stop_all(self) -> None:
        self._say("stopping")
        self._signal_all(signal.SIGTERM)
        deadline_s = time.monotonic() + STOP_GRACE_S
        self._reap()
        while any(child.pid for child in self._children):
            if time.monotonic() >= deadline_s:
                self._say(f"still running after {STOP_GRACE_S:.0f} s, killed")
                self._signal_all(signal.SIGKILL)
                # SIGKILL needs no patience, but a process in the kernel may not die: then leave it to our
                # own end.
                deadline_s = time.monotonic() + 1.0
                self._wait(deadline_s)
                self._reap()
                break
            self._wait(deadline_s)
            self._reap()
        self._say("stopped")
        self._output.flush()


def main(arguments: list[str]) -> int:
    """`init ROLE [--file FILE]`: the exit code is 0 after a stop, 2 for a wrong call or file."""
    usage = (
        "usage: podyard init ROLE [--file FILE]\n\nPID 1 of a container: starts and supervises its processes."
    )
    file = DEFAULT_FILE
    if "--help" in arguments or "-h" in arguments:
        print(usage)
        return 0
    if len(arguments) == 3 and arguments[1] == "--file":
        file = arguments[2]
    elif len(arguments) != 1:
        print(usage, file=sys.stderr)
        return 2
    try:
        processes = load(file)
    except SpecError as error:
        print(f"podyard init: {error}", file=sys.stderr)
        return 2
    return Supervisor(processes, Output(sys.stdout.fileno())).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
