"""What each message and field means here: who writes it, who acts on it. For people, through OpenAPI.

The texts stand in `tables/descriptions.tsv`. They are read where documents are made and not kept:
the documents are.
"""

from __future__ import annotations

from podyard.api import facts

# Stand for a message where the table has no row of the message itself.
ANY_KIND = "(any kind)"
ANY_LIST = "(any list)"


class Texts:
    """The texts by message and field."""

    def __init__(self, texts: dict[tuple[str, str], str]) -> None:
        self._texts = texts

    def of(self, full_name: str, field: str = "") -> str:
        """The text of a message, or of one of its fields by its JSON name; empty where there is none."""
        own = self._texts.get((full_name, field))
        return own if own is not None else self._texts.get((shared(full_name), field), "")


def shared(full_name: str) -> str:
    """Whose rows a message shares: those of all kinds, or of all lists; empty for parts of objects."""
    fact = facts.messages().get(full_name)
    if fact is None or not fact.has_typemeta:
        return ""
    return ANY_LIST if fact.is_list else ANY_KIND


def read() -> Texts:
    """Reads the table."""
    return Texts({(row["message"], row["field"]): row["text"] for row in facts.rows("descriptions")})
