"""Instruments: what watches from inside, in the task that does the work; telemetry hangs here."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Any, Final, Literal, Protocol

from branchpoint.errors import InvalidCallError

__all__ = [
    "Instrument",
    "InstrumentKind",
    "add_instrument",
    "instrumented",
    "instruments",
    "remove_instrument",
]

InstrumentKind = Literal["build", "run", "superstep", "executor", "commit", "load"]

_logger = logging.getLogger("branchpoint")

instruments: Final[list[Instrument]] = []
"""Those of this process. A room asks `if instruments:` and enters `instrumented(...)` only then."""

# Reentrant: the collector may drop an object whose `__del__` removes its instrument while it is taken.
_changing = threading.RLock()

_told: Final[dict[int, set[str]]] = {}
"""By the identity of an instrument: the kinds of block in which it has failed, and was reported for it."""


class Instrument(Protocol):
    """Something that is entered around each piece of work; `add_instrument` makes it so for this process.

    Blocks of one task are nested, and what an instrument sets in context variables when it is entered is
    seen by all that happens inside, in handlers too, async or in a thread, and in storage. An
    executor's block is entered in that executor's own task, so blocks of different executors overlap.
    Several runs, loops and threads may enter one instrument at once.

    It changes nothing. Where it raises, anything but `KeyboardInterrupt` and `SystemExit`, it is skipped
    for that block and stays for the next. Its first failure in each kind of block is logged with its
    traceback as an error of the logger `branchpoint`, further ones at the level of debugging. Its
    `__exit__` is given what the work raised, and its answer is not looked at. It is called on the
    thread of the event loop, so it must not block.

    Example:
        ```python
        class Prints:
            @contextmanager
            def around(self, kind: InstrumentKind, info: dict[str, Any]) -> Iterator[None]:
                print("begins", kind, info)
                try:
                    yield
                finally:
                    print("ends", kind, info)
        ```
    """

    def around(self, kind: InstrumentKind, info: dict[str, Any]) -> AbstractContextManager[Any]:
        """Return the block to enter around one piece of work.

        Args:
            kind: What is done.
            info: What is known of it, of plain values. All keys are there at once; what is known only
                afterwards is None until just before the block is left. It belongs to this one block, and
                what an instrument writes into it is seen by those that were added after it.
        """
        ...


def add_instrument(instrument: Instrument) -> None:
    """Have an instrument entered around everything that begins in this process from now on.

    Of several, the one added first is entered first and left last. Safe from every thread.

    Raises:
        InvalidCallError: It is none, or it was added before.
    """
    if isinstance(instrument, type) or not callable(getattr(instrument, "around", None)):
        given = instrument if isinstance(instrument, type) else type(instrument)
        raise InvalidCallError(
            "An instrument is an object with a method around(kind, info) that returns a context manager, "
            f"got {'the class itself, ' if given is instrument else 'an object of class '}"
            f"{given.__module__}.{given.__qualname__}."
        )
    with _changing:
        if _is_added(instrument):
            raise InvalidCallError(
                f"This {_name(instrument)} was added before, and would see everything twice. "
                "Remove it first, or add another object."
            )
        _told[id(instrument)] = set()
        instruments.append(instrument)


def remove_instrument(instrument: Instrument) -> None:
    """Enter an instrument no more; blocks that it is in now are still left. Safe from every thread.

    Raises:
        InvalidCallError: It was not added, or was removed already.
    """
    with _changing:
        if not _is_added(instrument):
            raise InvalidCallError(f"This {_name(instrument)} is not among the instruments of this process.")
        # In one step, for those who read it at this moment without the lock.
        instruments[:] = [one for one in instruments if one is not instrument]
        _told.pop(id(instrument), None)


def instrumented(kind: InstrumentKind, info: dict[str, Any]) -> Instrumented:
    """Return a block that enters all instruments there are and leaves them in the reverse order.

    It gives `info`, to be completed inside. A backend outside of this library may put one around its
    `load`, after asking `if instruments:`.
    """
    return Instrumented(kind, info)


class Instrumented:
    """One block, inside of every instrument that could be entered; nothing an instrument does gets out of it."""

    __slots__ = ("_entered", "_info", "_kind")

    def __init__(self, kind: InstrumentKind, info: dict[str, Any]) -> None:
        self._kind: InstrumentKind = kind
        self._info = info
        self._entered: list[tuple[Instrument, Callable[..., Any], Any]] = []

    def __enter__(self) -> dict[str, Any]:
        for instrument in tuple(instruments):
            try:
                block = instrument.around(self._kind, self._info)
                # Both before it is entered, so that what has no way out is not entered.
                enter, leave = type(block).__enter__, type(block).__exit__
                enter(block)
            except (KeyboardInterrupt, SystemExit) as error:
                self.__exit__(type(error), error, error.__traceback__)
                raise
            except BaseException as error:
                _report(instrument, self._kind, error)
            else:
                self._entered.append((instrument, leave, block))
        return self._info

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        context = None if error is None else error.__context__
        while self._entered:
            instrument, leave, block = self._entered.pop()
            try:
                leave(block, kind, error, trace)
            except (KeyboardInterrupt, SystemExit) as stop:
                self.__exit__(type(stop), stop, stop.__traceback__)
                raise
            except BaseException as failure:
                _report(instrument, self._kind, failure)
                if failure is error:  # it was raised again, which wrote into it
                    error.with_traceback(trace)
                    error.__context__ = context


def _is_added(instrument: object) -> bool:
    return any(one is instrument for one in instruments)


def _name(instrument: object) -> str:
    return f"instrument {type(instrument).__module__}.{type(instrument).__qualname__}"


def _report(instrument: Instrument, kind: InstrumentKind, failure: BaseException) -> None:
    kinds = _told.get(id(instrument))
    again = kinds is not None and kind in kinds
    if kinds is not None:
        kinds.add(kind)
    with suppress(Exception):  # a handler of the log that raises fails no run either
        _logger.log(
            logging.DEBUG if again else logging.ERROR,
            "%s failed around a %s and was skipped there; the work went on",
            _name(instrument),
            kind,
            exc_info=failure,
        )
