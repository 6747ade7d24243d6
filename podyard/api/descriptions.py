"""What each message and field means here: who writes it, who acts on it. For people, through OpenAPI.

The texts stand in `tables/descriptions.tsv`, read once, when a document is first made.
"""

from __future__ import annotations

from functools import cache

from podyard.api import facts

# Stand for a message where the table has no row of the message itself.
ANY_KIND = "(any kind)"
ANY_LIST = "(any list)"


def of(full_name: str, field: str = "") -> str:
    """The text of a message, or of one of its fields by its JSON name; empty where there is none."""
    own = _texts().get((full_name, field))
    return own if own is not None else _texts().get((_shared(full_name), field), "")


def _shared(full_name: str) -> str:
    """Whose rows a message shares: those of all kinds, or of all lists; empty for parts of objects."""
    fact = facts.messages().get(full_name)
    if fact is None or not fact.has_typemeta:
        return ""
    return ANY_LIST if fact.is_list else ANY_KIND


@cache
def _texts() -> dict[tuple[str, str], str]:
    return {(row["message"], row["field"]): row["text"] for row in facts.rows("descriptions")}
