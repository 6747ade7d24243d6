"""The one door to randomness: object uids, name suffixes, jitter.

`seed` makes a run repeatable (simulation, property tests); without it the system's generator is
used. Nothing here is a secret: keys and tokens come from `podyard.base.pki`.
"""

from __future__ import annotations

import random
import uuid

# Upstream's alphabet for generated names: no vowels, no digits that look like letters.
_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"

_random = random.Random()


def seed(value: int | None) -> None:
    """Makes everything below repeatable; None goes back to the system's randomness."""
    _random.seed(value)


def uid() -> str:
    """A version 4 UUID, as `metadata.uid`."""
    return str(uuid.UUID(int=_random.getrandbits(128), version=4))


def name_suffix(length: int = 5) -> str:
    """What generateName appends."""
    return "".join(_random.choices(_NAME_ALPHABET, k=length))


def jitter() -> float:
    """A number in [0, 1) to spread retries and periods."""
    return _random.random()


def hex_id(length: int = 16) -> str:
    """Lower-case hexadecimal digits, for request ids and the like."""
    return f"{_random.getrandbits(4 * length):0{length}x}"


def choice_index(count: int) -> int:
    """An index in [0, count)."""
    return _random.randrange(count)
