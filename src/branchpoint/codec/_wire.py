"""Plain JSON for the outside world: schemas, reading and writing.

One set of rules for all three: what `json_schema` describes is what `from_json` reads and what
`to_json` writes.
"""

from __future__ import annotations

from typing import Any

from branchpoint.codec._convert import convert_json
from branchpoint.codec._json import to_json
from branchpoint.codec._schema import json_schema

__all__ = ["from_json", "json_schema", "to_json"]


def from_json(value: Any, tp: Any) -> Any:
    """Read parsed JSON as the declared type `tp`.

    Guarantees:
        The rules of `convert`, and what JSON cannot say otherwise: base64 text for bytes, text for
        paths and fractions, text for keys that are numbers, pydantic models by pydantic's own rules,
        every other registered type by its decoder.

    Raises:
        UnsupportedValueError: The JSON does not fit; the message names the field and what was expected.
        UnregisteredTypeError: The type, or one inside it, has no plain JSON form.
        DefinitionError: The declared type cannot be understood.
    """
    json_schema(tp)  # an unknown type is the developer's mistake, whatever the value is
    return convert_json(value, tp)
