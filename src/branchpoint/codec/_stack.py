"""Deep values on shallow stacks: what meets the recursion limit is done again with a larger stack."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from typing import Final, TypeVar

__all__ = ["has_room", "with_room"]

_Result = TypeVar("_Result")

_STACK: Final = 64 * 1024 * 1024  # address space, touched only as far as it is used
_FRAMES: Final = 4_000  # over four times what the deepest value takes
_NAME: Final = "branchpoint-deep-value"
_one_at_a_time = threading.Lock()  # stack size and recursion limit belong to the whole process


def has_room() -> bool:
    """Whether this already runs on the larger stack, so that a recursion without end is just that."""
    return threading.current_thread().name == _NAME


def with_room(function: Callable[[], _Result]) -> _Result:
    """Return `function()`; should it meet the recursion limit, call it again on a fresh, larger stack.

    So what may be kept depends on the value alone and never on how deep the caller stands. The
    fresh thread sees the caller's context variables.
    """
    try:
        return function()
    except RecursionError:
        if has_room():
            raise
    results: list[_Result] = []
    errors: list[BaseException] = []
    context = contextvars.copy_context()

    def work() -> None:
        try:
            results.append(context.run(function))
        except BaseException as error:
            errors.append(error)

    with _one_at_a_time:
        stack, frames = threading.stack_size(_STACK), sys.getrecursionlimit()
        sys.setrecursionlimit(max(frames, _FRAMES))
        try:
            thread = threading.Thread(target=work, name=_NAME, daemon=True)
            thread.start()
            thread.join()
        finally:
            sys.setrecursionlimit(frames)
            threading.stack_size(stack)
    if errors:
        raise errors[0]
    return results[0]
