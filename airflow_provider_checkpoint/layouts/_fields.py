"""Types of the fields in a JSON manifest: numbers with the ranges the references give them, texts, maps.

For strict models: a bool is no number, null is no empty map.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias, TypeVar

from pydantic import AfterValidator, Field, Strict

Value = TypeVar("Value")


def _by_name(values: dict[str, Value]) -> dict[str, Value]:
    return dict(sorted(values.items()))


U16: TypeAlias = Annotated[int, Field(ge=0, lt=2**16)]
U32: TypeAlias = Annotated[int, Field(ge=0, lt=2**32)]
U64: TypeAlias = Annotated[int, Field(ge=0, lt=2**64)]
I64: TypeAlias = Annotated[int, Field(ge=-(2**63), lt=2**63)]
# A bound, however low, makes pydantic look at the characters: half a character is refused here, not when written.
Text: TypeAlias = Annotated[str, Field(min_length=0)]
Names: TypeAlias = Annotated[tuple[Text, ...], Strict(False)]
# Maps are sorted by name, so that equal manifests are equal bytes.
ByName: TypeAlias = Annotated[dict[Text, Value], AfterValidator(_by_name)]
