"""What a clause says when a storage does not keep it.

Not `assert`: a report needs words and values where pytest does not rewrite, and a clause must be able
to fail under `python -O`.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Caught", "explained", "holds", "refused", "same"]

_LONG = 300


def same(found: Any, expected: Any, what: str = "") -> None:
    """Check that what was found is what was expected.

    Raises:
        AssertionError: It is not; the message has both.
    """
    if found != expected:
        about = f"{what}: " if what else ""
        raise AssertionError(f"{about}found {_short(found)}, expected {_short(expected)}")


def holds(condition: object, what: str) -> None:
    """Check a condition.

    Raises:
        AssertionError: It does not hold; the message is `what`.
    """
    if not condition:
        raise AssertionError(what)


class Caught:
    """The error that `refused` caught, once its block has ended."""

    error: BaseException


@contextmanager
def refused(kind: type[BaseException], match: str = "", what: str = "") -> Iterator[Caught]:
    """Check that the block raises an error of that kind, whose message matches.

    Raises:
        AssertionError: It raises nothing, another one, or says something else.
    """
    caught = Caught()
    about = f"{what}: " if what else ""
    try:
        yield caught
    except kind as error:
        caught.error = error
        holds(re.search(match, str(error)), f"{about}the error says {str(error)!r}, and not {match!r}")
    except Exception as error:
        raise AssertionError(
            f"{about}{kind.__name__} was expected, and {type(error).__name__} came: {_short(error)}"
        ) from error
    else:
        raise AssertionError(f"{about}{kind.__name__} was expected, and nothing was raised")


def explained(error: BaseException) -> str:
    """Say in one line what an error was, and which line of a clause met it."""
    said = _short(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {_short(error)}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "clauses" in frame.filename]
    return f"{said} (at `{frames[-1].line}`)" if frames else said


def _short(value: object) -> str:
    text = str(value) if isinstance(value, BaseException) else repr(value)
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"
