"""Quantities: `500m`, `1Gi`, `1e3`. Parsing, the canonical form, and exact arithmetic.

An `Amount` is a whole number of nano-units and the notation it was written in; that is exact,
since upstream rounds everything finer up to a nano. The wire keeps strings; the codec writes
only canonical ones.

Counterpart: apimachinery `api/resource`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from podyard.api.types import Quantity

DECIMAL_SI = "DecimalSI"
DECIMAL_EXPONENT = "DecimalExponent"
BINARY_SI = "BinarySI"

NANOS = 10**9
_MAX_BINARY_NANOS = (2**63 - 1) * NANOS

WRONG_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
WRONG_NUMBER = "unable to parse numeric part of quantity"
WRONG_SUFFIX = "unable to parse quantity's suffix"

_PATTERN = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
_EXPONENT = re.compile(r"[eE]([-+]?[0-9]+)", re.ASCII)
_DECIMAL_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIXES = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_NAMES = {power: name for name, power in _DECIMAL_SUFFIXES.items()}
_BINARY_NAMES = {power: name for name, power in _BINARY_SUFFIXES.items()}
# No quantity anyone means has more; a longer exponent would only make a number too big to hold.
_MAX_EXPONENT = 1000


class QuantityError(ValueError):
    """Text that is no quantity; the message is upstream's."""


@dataclass(frozen=True, slots=True)
class Amount:
    """A quantity's value in nano-units and the notation for showing it."""

    nanos: int
    notation: str = DECIMAL_SI

    def __str__(self) -> str:
        return _shown(self)

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.nanos + other.nanos, _notation_of_sum(self, other))

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.nanos - other.nanos, _notation_of_sum(self, other))

    @property
    def value(self) -> int:
        """Whole units, rounded away from zero."""
        return _round_up(self.nanos, NANOS)

    @property
    def milli(self) -> int:
        """Thousandths, rounded away from zero (milli-cores for cpu)."""
        return _round_up(self.nanos, NANOS // 1000)

    def rounded_to_milli(self) -> Amount:
        """This amount without anything finer than a thousandth, rounded up."""
        return Amount(self.milli * (NANOS // 1000), self.notation)


ZERO = Amount(0)


@lru_cache(maxsize=8192)
def parse(text: str) -> Amount:
    """Reads a quantity.

    Raises:
        QuantityError: with upstream's text, when the string is not one.

    Source: apimachinery api/resource ParseQuantity.
    """
    match = _PATTERN.fullmatch(text)
    if match is None or not text:
        raise QuantityError(WRONG_FORMAT)
    sign, whole, fraction, suffix = match[1], match[2], match[3] or "", match[4]
    if not whole and not fraction:
        raise QuantityError(WRONG_NUMBER if match[3] is not None else WRONG_FORMAT)
    base, exponent, notation = _suffix(suffix)
    numerator = int(whole + fraction) * NANOS
    denominator = 10 ** len(fraction)
    if base == 2:
        numerator <<= exponent
    elif exponent >= 0:
        numerator *= 10**exponent
    else:
        denominator *= 10**-exponent
    nanos = _round_up(numerator, denominator)
    if notation == BINARY_SI:
        nanos = min(nanos, _MAX_BINARY_NANOS)
        if 0 < nanos < NANOS:
            notation = DECIMAL_SI
    return Amount(-nanos if sign == "-" else nanos, notation)


@lru_cache(maxsize=8192)
def canonical(text: str) -> str:
    """The canonical form: `1000m` -> `1`, `1024Mi` -> `1Gi`, `0.5` -> `500m`.

    Raises:
        QuantityError: when the string is no quantity.
    """
    return _shown(parse(text))


def of(quantity: Quantity) -> Amount:
    """A message's amount; the empty message is zero."""
    return parse(quantity.string) if quantity.string else ZERO


def message(amount: Amount) -> Quantity:
    """An amount as a message in canonical form."""
    return Quantity(string=_shown(amount))


def from_value(value: int, notation: str = DECIMAL_SI) -> Amount:
    """Whole units as an amount."""
    return Amount(value * NANOS, notation)


def total(lists: Iterable[Mapping[str, Quantity]]) -> dict[str, Amount]:
    """Sums resource lists name by name."""
    sums: dict[str, Amount] = {}
    for resources in lists:
        for name, quantity in resources.items():
            amount = of(quantity)
            sums[name] = sums[name] + amount if name in sums else amount
    return sums


def _suffix(suffix: str) -> tuple[int, int, str]:
    """Base, exponent and notation of a suffix."""
    if suffix in _DECIMAL_SUFFIXES:
        return 10, _DECIMAL_SUFFIXES[suffix], DECIMAL_SI
    if suffix in _BINARY_SUFFIXES:
        return 2, _BINARY_SUFFIXES[suffix], BINARY_SI
    match = _EXPONENT.fullmatch(suffix)
    if match is None or abs(int(match[1])) > _MAX_EXPONENT:
        raise QuantityError(WRONG_SUFFIX)
    return 10, int(match[1]), DECIMAL_EXPONENT


def _shown(amount: Amount) -> str:
    if amount.nanos == 0:
        return "0"
    whole, rest = divmod(abs(amount.nanos), NANOS)
    # Binary notation only where it is exact and at least one Ki, as upstream.
    if amount.notation == BINARY_SI and rest == 0 and whole >= 1024:
        power = 0
        while whole % 1024 == 0 and power < 60:
            whole //= 1024
            power += 10
        return f"{'-' if amount.nanos < 0 else ''}{whole}{_BINARY_NAMES.get(power, '')}"
    mantissa, power = abs(amount.nanos), -9
    limit = _MAX_EXPONENT if amount.notation == DECIMAL_EXPONENT else 18
    while mantissa % 1000 == 0 and power < limit:
        mantissa //= 1000
        power += 3
    if amount.notation == DECIMAL_EXPONENT:
        suffix = f"e{power}" if power else ""
    else:
        suffix = _DECIMAL_NAMES[power]
    return f"{'-' if amount.nanos < 0 else ''}{mantissa}{suffix}"


def _notation_of_sum(left: Amount, right: Amount) -> str:
    """A zero left side takes the other's notation, as upstream's Add."""
    return right.notation if left.nanos == 0 else left.notation


def _round_up(numerator: int, denominator: int) -> int:
    """Division rounded away from zero."""
    if numerator < 0:
        return -((-numerator + denominator - 1) // denominator)
    return (numerator + denominator - 1) // denominator
