"""Back-off values, pure: the jitter is handed in as a number."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off.

    Attributes:
        base_s: delay after the first failure.
        cap_s: the longest delay.
        factor: growth for each further failure.
        spread: how much of the delay the jitter may add, 0.1 = up to 10 %.
    """

    base_s: float
    cap_s: float
    factor: float = 2.0
    spread: float = 0.1

    def delay_s(self, attempt: int, jitter: float = 0.0) -> float:
        """The wait before retry number `attempt` (0 = the first), jitter in [0, 1)."""
        # Powers past the cap would overflow a float after some thousand failures.
        exponent = min(attempt, 64)
        return min(self.base_s * self.factor**exponent, self.cap_s) * (1 + self.spread * jitter)
