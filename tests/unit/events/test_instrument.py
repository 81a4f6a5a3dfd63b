"""Instruments by themselves: who is entered, in which order, and that nothing of them gets out."""

from __future__ import annotations

import asyncio
import logging
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from branchpoint import (
    Instrument,
    InstrumentKind,
    InvalidCallError,
    add_instrument,
    remove_instrument,
)
from branchpoint.events import instrumented, instruments
from tests.instruments import Bad, Recorder, attached


class Lines:
    """Writes a line for each call."""

    def __init__(self, name: str, lines: list[str]) -> None:
        self.name = name
        self.lines = lines

    @contextmanager
    def around(self, kind: InstrumentKind, info: dict[str, Any]) -> Iterator[None]:
        self.lines.append(f"+{self.name} {kind} {info}")
        try:
            yield
        finally:
            self.lines.append(f"-{self.name} {kind} {info}")


class Boom(Exception):
    pass


# Adding and removing.


def test_they_are_entered_in_the_order_of_adding_and_left_in_reverse() -> None:
    lines: list[str] = []
    with attached(Lines("a", lines), Lines("b", lines)), instrumented("run", {"n": None}) as info:
        lines.append("work")
        info["n"] = 1
    assert lines == [
        "+a run {'n': None}",
        "+b run {'n': None}",
        "work",
        "-b run {'n': 1}",
        "-a run {'n': 1}",
    ]
    assert instruments == []


def test_one_is_added_once_and_told_by_identity() -> None:
    class Alike(Recorder):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    first, second = Alike(), Alike()
    with attached(first, second):
        with pytest.raises(InvalidCallError, match=r"instrument .*Alike was added before"):
            add_instrument(first)
        remove_instrument(first)
        assert [one is second for one in instruments] == [True]
        with pytest.raises(InvalidCallError, match="not among the instruments"):
            remove_instrument(first)
        add_instrument(first)
    assert instruments == []


@pytest.mark.parametrize("given", [None, 5, Recorder, "around", type("No", (), {"around": 1})()])
def test_what_is_no_instrument_is_refused(given: Any) -> None:
    with pytest.raises(InvalidCallError, match=r"a method around\(kind, info\)"):
        add_instrument(given)
    assert instruments == []


def test_one_that_comes_or_goes_inside_a_block_is_not_entered_or_is_left() -> None:
    outer, late = Recorder(), Recorder()
    add_instrument(outer)
    try:
        with instrumented("run", {}):
            add_instrument(late)
            remove_instrument(outer)
            with instrumented("superstep", {}):
                pass
    finally:
        remove_instrument(late)
    assert outer.outline() == ["run"] and late.outline() == ["superstep"]
    outer.check_balanced()
    late.check_balanced()


def test_one_may_remove_itself_and_add_another_while_it_is_entered() -> None:
    second, late = Recorder(), Recorder()

    def switch(block: object) -> None:
        remove_instrument(first)
        add_instrument(late)

    first = Recorder(switch)
    add_instrument(first)
    add_instrument(second)
    try:
        with instrumented("run", {}), instrumented("commit", {}):
            pass
    finally:
        remove_instrument(late)
        remove_instrument(second)
    assert (first.outline(), late.outline()) == (["run"], ["commit"])
    assert second.outline() == ["run", "  commit"]
    for one in (first, second, late):
        one.check_balanced()


def test_threads_may_add_and_remove_at_once() -> None:
    failures: list[BaseException] = []
    line = threading.Barrier(8)

    def work() -> None:
        try:
            line.wait()
            for _ in range(200):
                own = Recorder()
                add_instrument(own)
                with instrumented("run", {}):
                    pass
                remove_instrument(own)
                assert "run" in own.outline()  # beside those of other threads, which are all its own
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and instruments == []


# What an instrument does stays inside of it.


class Strange(BaseException):
    pass


RAISED = [Boom, Strange, asyncio.CancelledError, GeneratorExit, StopIteration, StopAsyncIteration]


@pytest.mark.parametrize("raised", RAISED)
@pytest.mark.parametrize("place", ["around", "enter", "exit"])
@pytest.mark.parametrize("work", [None, Boom, asyncio.CancelledError, KeyboardInterrupt])
def test_one_that_raises_is_skipped_and_the_others_are_not(
    raised: type[BaseException], place: str, work: type[BaseException] | None
) -> None:
    def does(where: str, error: BaseException | None) -> None:
        if where == place:
            raise raised("its own")

    before, after = Recorder(), Recorder()
    bad = Bad(does)
    own = None if work is None else work("the work's")
    with attached(before, bad, after):
        try:
            with instrumented("commit", {}):
                if own is not None:
                    raise own
        except BaseException as error:
            assert error is own and error.__context__ is None and error.__cause__ is None
        else:
            assert own is None
    assert bad.calls == 1
    for good in (before, after):
        good.check_balanced()
        assert [block.error for block in good.blocks] == [own]


@pytest.mark.parametrize("answer", [True, 1, "yes"])
def test_a_true_answer_of_a_block_is_not_looked_at(answer: object) -> None:
    with attached(Bad(lambda where, error: answer)), pytest.raises(Boom), instrumented("run", {}):
        raise Boom


def test_one_that_raises_the_works_own_error_again_writes_nothing_into_it() -> None:
    def does(where: str, error: BaseException | None) -> None:
        if error is not None:
            try:
                raise ValueError("in between")
            except ValueError:
                raise error  # noqa: B904

    def work() -> None:
        with instrumented("run", {}):
            try:
                raise KeyError("first")
            except KeyError:
                raise Boom  # noqa: B904

    def told() -> list[str]:
        with pytest.raises(Boom) as caught:
            work()
        assert type(caught.value.__context__) is KeyError
        return traceback.format_exception(caught.value)

    alone = told()
    with attached(Bad(does)):
        assert told() == alone


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("place", ["around", "enter", "exit"])
def test_what_ends_the_process_is_let_through_and_every_block_is_left(
    stop: type[BaseException], place: str
) -> None:
    def does(where: str, error: BaseException | None) -> None:
        if where == place:
            raise stop

    before, after = Recorder(), Recorder()
    with attached(before, Bad(does), after), pytest.raises(stop), instrumented("run", {}):
        assert place == "exit"
    assert [type(block.error) for block in before.blocks] == [stop]
    assert [block.error for block in after.blocks] == ([None] if place == "exit" else [])
    before.check_balanced()
    after.check_balanced()


class NoWayOut:
    def __init__(self) -> None:
        self.entered = False

    def __enter__(self) -> None:
        self.entered = True


@pytest.mark.parametrize("block", [None, 7, NoWayOut()])
def test_what_is_no_context_manager_is_not_entered(block: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Wrong:
        def around(self, kind: InstrumentKind, info: dict[str, Any]) -> Any:
            return block

    with attached(Wrong()), instrumented("run", {}) as info:
        info["work"] = "goes on"
    (record,) = caplog.records
    assert record.exc_info is not None and record.exc_info[0] is AttributeError
    assert not isinstance(block, NoWayOut) or not block.entered


# What is logged.


def _raises(where: str, error: BaseException | None) -> None:
    if where == "enter":
        raise Boom("no span today")


def test_the_first_failure_of_each_kind_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    bad, other = Bad(_raises), Bad(_raises)
    with attached(bad, other):
        for kind in ("run", "run", "commit", "run", "commit"):
            with instrumented(kind, {}):  # type: ignore[arg-type]
                pass
    said = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.getMessage().split(" failed ")[1] for record in said] == [
        f"around a {kind} and was skipped there; the work went on"
        for kind in ("run", "run", "commit", "commit")
    ]
    assert len([record for record in caplog.records if record.levelno == logging.DEBUG]) == 6
    for record in caplog.records:
        assert record.name == "branchpoint" and "instrument tests.instruments.Bad" in record.getMessage()
        assert record.exc_info is not None and isinstance(record.exc_info[1], Boom)
        assert record.exc_info[2] is not None
    assert (bad.calls, other.calls) == (5, 5)  # it stays
    caplog.clear()
    with attached(bad), instrumented("run", {}):
        pass
    assert [record.levelname for record in caplog.records] == ["ERROR"]  # it was added anew


def test_a_failure_of_one_that_was_removed_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    def does(where: str, error: BaseException | None) -> None:
        if where == "exit":
            raise Boom

    bad = Bad(does)
    add_instrument(bad)
    with instrumented("run", {}):
        remove_instrument(bad)
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_log_that_raises_and_errors_without_a_text_harm_nothing() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    class Breaks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            self.format(record)
            raise OSError("the disk of the log is full")

    def does(where: str, error: BaseException | None) -> None:
        raise Mute

    logger, handler = logging.getLogger("branchpoint"), Breaks()
    logger.addHandler(handler)
    try:
        with attached(Bad(does)), instrumented("run", {}) as info:
            info["work"] = "goes on"
    finally:
        logger.removeHandler(handler)


def test_an_instrument_may_be_written_in_any_of_these_ways() -> None:
    lines: list[str] = []

    class Derived(Instrument):
        def around(self, kind: InstrumentKind, info: dict[str, Any]) -> Any:
            return Lines("derived", lines).around(kind, info)

    with attached(Derived(), Recorder(), Lines("plain", lines)), instrumented("load", {}):
        assert lines == ["+derived load {}", "+plain load {}"]
