"""What can go wrong with a cluster, each with a stable exit code and a hint what to do."""

from __future__ import annotations


class ClusterError(Exception):
    """Something failed. The text says what, `hint` what to do about it: there is always something."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str) -> None:
        assert hint.strip(), f"nobody is told what to do about: {message}"
        super().__init__(message)
        self.hint = hint


class SpecError(ClusterError):
    """The wish cannot be granted, whatever the host."""

    exit_code = 2


class PreflightError(ClusterError):
    """The host cannot carry a cluster as it is."""

    exit_code = 3


class NotFoundError(ClusterError):
    """No such cluster, container or image."""

    exit_code = 4


def no_cluster(name: str) -> NotFoundError:
    """What every command says of a cluster that is not on this host."""
    return NotFoundError(
        f"there is no cluster {name!r} on this host", hint="podyard list shows those there are"
    )


class NotReadyError(ClusterError):
    """A deadline passed before something became ready."""

    exit_code = 5
