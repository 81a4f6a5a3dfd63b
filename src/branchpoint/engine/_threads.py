"""A sync function in a thread of its own, which may be abandoned.

A pool would have to be waited for at exit, and a thread that cannot be cancelled would hang it.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["call_in_thread"]


async def call_in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Call `function` in a daemon thread, in the caller's context variables, and return its result.

    Cancelling the wait abandons the thread; whatever the function returns later goes nowhere.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Any, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)

    def work() -> None:
        result: Any = None
        failure: BaseException | None = None
        try:
            result = context.run(function, *args)
        except StopIteration as error:  # a future refuses it
            failure = RuntimeError("a sync handler raised StopIteration, which no future can carry")
            failure.__cause__ = error
        except BaseException as error:
            failure = error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    threading.Thread(target=work, name="branchpoint-handler", daemon=True).start()
    return await answer
