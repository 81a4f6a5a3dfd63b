"""The four buckets of a run's state, as a commit takes them.

What did not change since the last commit is handed over as the same object, so that nobody has to
look at it again: values as their encodings, and the dicts above them `Settled`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import is_
from typing import TYPE_CHECKING, Any, Final

from branchpoint.codec import Encoded, Frame, Memo, Settled, encode
from branchpoint.engine._cell import Cell, Medium

if TYPE_CHECKING:
    from branchpoint.engine._state import OpenRequest, RunState

__all__ = ["Exporter"]

_EMPTY: Final = Settled()
_SHORT: Final = 30  # characters, which may take three bytes each


class _Cells:
    """Cells by name, in the form of a bucket."""

    __slots__ = ("made", "plain")

    def __init__(self) -> None:
        self.made = _EMPTY
        self.plain = True

    def settle(
        self, cells: Mapping[str, Cell], order: Iterable[str], changed: set[str] | None, medium: Medium
    ) -> Settled:
        """Encode again what changed; None stands for all, and for names that came or went."""
        if changed is not None and changed <= self.made.keys() and changed <= cells.keys():
            if changed:
                self.made = self.made.with_({name: cells[name].encoded(medium) for name in changed})
            return self.made
        self.made = Settled((name, cells[name].encoded(medium)) for name in order if name in cells)
        self.plain = not any(name[:1] == "$" for name in self.made)
        return self.made


class Exporter:
    """Makes the buckets of one run, one commit after the other."""

    __slots__ = (
        "_asked",
        "_cursor",
        "_earlier_memo",
        "_executors",
        "_input",
        "_of_input",
        "_output",
        "_output_memo",
        "_outputs",
        "_requests",
        "_shared",
    )

    def __init__(self) -> None:
        self._cursor = _EMPTY
        self._earlier_memo: Memo | None = None
        self._executors = _Cells()
        self._shared = _Cells()
        self._input = _EMPTY
        self._of_input: Any = None
        self._output: Encoded | None = None
        self._output_memo: Memo | None = None
        self._outputs = -1
        self._requests: Encoded | None = None
        self._asked: list[OpenRequest] = []

    def export(self, state: RunState, medium: Medium) -> dict[str, Any]:
        """Return the four buckets."""
        shared = self._shared.settle(state.shared, state.shared, state.written, medium)
        executors = self._executors.settle(state.executors, state.graph.executors, state.changed, medium)
        state.written, state.changed = set(), set()
        made = {
            "workflow_state": {
                "iteration_count": state.iteration,
                "status": state.status,
                "turn": state.turn,
                "shared": shared,
                "cursor": self._cursor_of(state),
            },
            "executor_states": executors,
            "edge_states": _edge_states(state, medium) if state.buffers else _EMPTY,
            "messages": {
                "input": self._input_of(state, medium),
                "pending": {
                    "deliveries": _deliveries(state, medium),
                    "requests": self._open_requests(state, medium),
                },
                "output": self._output_of(state, medium),
            },
        }
        plain = self._shared.plain and self._executors.plain and len(state.input_id or "") <= _SHORT
        return Frame(made) if plain and not state.buffers else made

    def _cursor_of(self, state: RunState) -> Settled:
        cursor = self._cursor
        if state.began or len(cursor) != 1 or cursor["input_iteration"] != state.input_iteration:
            self._cursor = Settled(input_iteration=state.input_iteration)
            if state.began:
                self._cursor["began"] = state.began
        return self._cursor

    def _input_of(self, state: RunState, medium: Medium) -> Settled:
        given = state.input
        if given is None:
            return _EMPTY
        if given is not self._of_input:
            self._of_input = given
            self._input = Settled(
                input_id=given.input_id,
                turn=given.turn,
                kind=given.kind,
                value=given.value.encoded(medium),
                earlier=self._earlier_of(state, medium),
            )
            if given.digest is not None:
                self._input["digest"] = given.digest
        return self._input

    def _earlier_of(self, state: RunState, medium: Medium) -> Encoded:
        """Inputs are only ever added."""
        made = [cell.encoded(medium) for cell in state.earlier]
        found, self._earlier_memo = encode(
            made, format=medium.format, memo=self._earlier_memo, depth=3, owned=True
        )
        return found

    def _open_requests(self, state: RunState, medium: Medium) -> Encoded | dict[str, Any]:
        if not state.requests:
            return {}
        asked = list(state.requests.values())
        if self._requests is None or len(asked) != len(self._asked) or not all(map(is_, asked, self._asked)):
            self._asked = asked
            made = {key: request.record.encoded(medium) for key, request in state.requests.items()}
            self._requests, _ = encode(made, format=medium.format, depth=3)
        return self._requests

    def _output_of(self, state: RunState, medium: Medium) -> Encoded | list[Any]:
        """Outputs are only ever added."""
        if not state.outputs:
            return []
        if self._output is None or self._outputs != len(state.outputs):
            self._outputs = len(state.outputs)
            made = [output.record.encoded(medium) for output in state.outputs]
            self._output, self._output_memo = encode(
                made, format=medium.format, memo=self._output_memo, depth=state.depth, owned=True
            )
        return self._output


def _deliveries(state: RunState, medium: Medium) -> Encoded:
    records = [delivery.record() for delivery in state.deliveries]
    made, _ = encode(records, format=medium.format, depth=3, path=f"{state.at}messages.pending.deliveries")
    return made


def _edge_states(state: RunState, medium: Medium) -> dict[str, Any]:
    return {
        group_id: {
            "received": {
                source: [cell.encoded(medium) for cell in cells] for source, cells in received.items()
            }
        }
        for group_id, received in state.buffers.items()
    }
