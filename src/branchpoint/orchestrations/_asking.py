"""Functions that a caller gave to decide something: asked by value, and told by name when they raise."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from branchpoint.errors import HandlerError

__all__ = ["ask", "called"]


def called(function: Callable[..., Any]) -> str:
    """Return the name of a function, or the class of what is called in place of one."""
    name: str = getattr(function, "__name__", type(function).__name__)
    return name


async def ask(function: Callable[[Any], Any], subject: Any, who: str, when: str, mend: str) -> Any:
    """Return what a function, plain or async, says of a subject.

    Args:
        function: The function.
        subject: What it is asked about; it gets it as its own.
        who: What the function is, and its name.
        when: Who asks, and about what.
        mend: What is to be mended when it raises.

    Raises:
        HandlerError: It raised.
    """
    try:
        answer = function(subject)
        return await answer if inspect.isawaitable(answer) else answer
    except Exception as error:
        raise HandlerError(
            f"{who}, asked by {when}, raised {type(error).__name__}: {error}. Nothing of this superstep was kept; "
            f"mend the {mend} and run the checkpoint again."
        ) from error
