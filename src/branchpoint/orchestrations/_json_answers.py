"""The JSON objects in what a model answered, with fences, prose and repetitions around them. Pure."""

from __future__ import annotations

import json
from typing import Any, Final

__all__ = ["objects_in", "quoted"]

_DECODER: Final = json.JSONDecoder()
_MOST: Final = 1_000
"""How many opening braces are tried: an answer of nothing else is no reason to read it a thousand times."""


def objects_in(text: str) -> list[dict[str, Any]]:
    """Return the outermost JSON objects in a text, in order; what is between them is skipped."""
    found: list[dict[str, Any]] = []
    at = text.find("{")
    for _ in range(_MOST):
        if at < 0:
            break
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            found.append(value)
        at = text.find("{", end)
    return found


def quoted(text: str) -> str:
    """Return the beginning of an answer, for an error."""
    return repr(text if len(text) <= 200 else f"{text[:200]}...")
