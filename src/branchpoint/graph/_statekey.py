"""Declared keys of the shared state, with the pure rule that folds one superstep's writes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias, get_origin

from branchpoint.codec import copy_value
from branchpoint.errors import DefinitionError, EncodingError, ExecutorStateError, StateConflictError
from branchpoint.graph._edges import callable_name, is_name
from branchpoint.graph._typing import matches, readable

__all__ = ["ABSENT", "Absent", "Reducer", "StateKey", "Write", "append", "fold", "last_write", "merge"]

Reducer: TypeAlias = Callable[[Any, Any], Any]
"""A pure function of the value so far and one written value; it returns the new value."""


class Absent(Enum):
    """The type of `ABSENT`, which stands for a key that holds nothing; None is a legal value."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent.ABSENT


def merge(current: Mapping[Any, Any], update: Mapping[Any, Any]) -> dict[Any, Any]:
    """Reducer: the entries of the written mapping are added to, or replace, those of the value."""
    return {**current, **update}


def append(current: Sequence[Any], item: Any) -> list[Any]:
    """Reducer: the written value becomes the last item of a list (`operator.add` joins two lists)."""
    return [*current, item]


def last_write(current: Any, value: Any) -> Any:
    """Reducer: the written value wins; of several executors, the one declared last."""
    return value


class Write(NamedTuple):
    """What one executor wrote to a key.

    Attributes:
        executor_id: Who wrote.
        value: The written value, or `ABSENT` when the key was deleted.
        replaces: True when the value was made from the value the writer saw (`update_state`): it
            takes that value's place and is not given to the reducer, which would count it twice.
    """

    executor_id: str
    value: Any
    replaces: bool = False


_LISTS: Final = frozenset({list, Sequence, MutableSequence, Collection, Iterable})
_NATURAL_FACTORIES: Final[dict[Any, Callable[[], Any]]] = {append: list, merge: dict}


@dataclass(frozen=True, slots=True)
class StateKey:
    """A key of the shared state that the definition declares.

    Attributes:
        key: The user's name for it.
        type: What its value must be; None leaves it unchecked.
        default: What it holds while nothing was written; every reader gets a copy.
        factory: Makes that value, in place of a default.
        reducer: Folds the writes of one superstep; without one, two writers are a conflict.
    """

    key: str
    type: Any = None
    default: Any = ABSENT
    factory: Callable[[], Any] | None = None
    reducer: Reducer | None = field(default=None)

    def __post_init__(self) -> None:
        if not is_name(self.key):
            raise DefinitionError(
                f"A state key is a text that is not empty, without lone surrogates, got {self.key!r}."
            )
        if self.default is not ABSENT and self.factory is not None:
            raise DefinitionError(f"State key '{self.key}' has a default and a factory; give one of them.")
        for name, function in (("factory", self.factory), ("reducer", self.reducer)):
            if function is not None and not callable(function):
                raise DefinitionError(
                    f"The {name} of state key '{self.key}' must be a function, got {type(function).__name__}."
                )
        # Its own from here on: the caller's object may change, and no workflow with it.
        try:
            object.__setattr__(self, "default", self._copied_default())
        except EncodingError as error:
            raise DefinitionError(
                f"The default of state key '{self.key}' cannot be copied for every run ({error}); give a "
                "factory that makes it."
            ) from error
        natural = _natural_factory(self.reducer)
        if natural is not None and self.default is ABSENT and self.factory is None:
            object.__setattr__(self, "factory", natural)

    def initial(self) -> Any:
        """Return the value of a key nothing was written to, or `ABSENT` when none is declared."""
        if self.factory is not None:
            return self.factory()
        return self._copied_default()

    def _copied_default(self) -> Any:
        if self.default is ABSENT:
            return ABSENT
        return copy_value(self.default, path=f"workflow_state.shared.{self.key}")

    def accepts(self, value: Any) -> bool:
        """Return whether the declared type allows `value`."""
        return self.type is None or matches(value, self.type)

    def accepts_more(self, writes: Sequence[Write]) -> bool | None:
        """Return whether the declared type allows what a reducer adds to a value that fits it.

        None when that cannot be told from the additions alone, and the whole is to be looked at.
        """
        if any(write.replaces or write.value is ABSENT for write in writes):
            return None
        if self.type is None:
            return True
        origin = get_origin(self.type)
        if self.reducer is append and origin in _LISTS:
            return self.accepts([write.value for write in writes])
        if (self.reducer is operator.add and origin is list) or (self.reducer is merge and origin is dict):
            return all(self.accepts(write.value) for write in writes)
        return None

    def check_default(self) -> None:
        """Check the initial value against the declared type.

        Raises:
            DefinitionError: The type does not allow it.
        """
        initial = self.initial()
        if initial is not ABSENT and not self.accepts(initial):
            raise DefinitionError(
                f"State key '{self.key}' is declared as {readable(self.type)}, but starts as "
                f"{type(initial).__name__}: change its type or its default."
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the declaration as plain JSON; functions and types appear by name."""
        return {
            "key": self.key,
            "type": None if self.type is None else readable(self.type),
            "reducer": None if self.reducer is None else callable_name(self.reducer),
        }


def fold(key: str, declared: StateKey | None, current: Any, writes: Sequence[Write]) -> Any:
    """Return what `key` holds after the writes of one superstep.

    A pure function; neither `current` nor a written value is changed, provided the reducer is pure.

    Args:
        key: The user's key, for messages.
        declared: Its declaration, or None.
        current: What it held at the last boundary, or `ABSENT`.
        writes: All writes in declared order of the executors, each executor's in its own order.

    Returns:
        The new value, or `ABSENT` when the key is deleted.

    Raises:
        StateConflictError: Two executors wrote, and there is no reducer, or one of them deleted the
            key or replaced its value, so that folding would lose the other's write (`last_write`
            allows that).
        ExecutorStateError: The new value does not fit the declared type.
    """
    if not writes:
        return current
    reducer = declared.reducer if declared is not None else None
    _refuse_conflict(key, reducer, writes)
    value = current
    for write in writes:
        if reducer is None or write.replaces or write.value is ABSENT:
            value = write.value
        else:
            value = _reduced(key, declared, reducer, value, write)
    if declared is None or declared.type is None or value is ABSENT:
        return value
    # What was written before fitted then, so of a long list only what is added is looked at.
    accepted = None if current is ABSENT else declared.accepts_more(writes)
    if accepted is None:
        accepted = declared.accepts(value)
    if not accepted:
        raise ExecutorStateError(
            f"State key '{key}' is declared as {readable(declared.type)}, but {_names(writes)} left "
            f"a {type(value).__name__} in it: write a value of that type, or change add_state."
        )
    return value


def _refuse_conflict(key: str, reducer: Reducer | None, writes: Sequence[Write]) -> None:
    if len({write.executor_id for write in writes}) < 2:
        return
    if reducer is None:
        raise StateConflictError(
            f"{_names(writes)} wrote state key '{key}' in one superstep, and nothing says how to combine "
            f"them: declare add_state({key!r}, reducer=...), for example append, merge or last_write, "
            "or let only one of them write it."
        )
    if reducer is last_write:  # asks for nothing else than that earlier writes are dropped
        return
    lossy = next((write for write in writes if write.replaces or write.value is ABSENT), None)
    if lossy is not None:
        did = "deleted" if lossy.value is ABSENT else "updated"
        raise StateConflictError(
            f"{_names(writes)} wrote state key '{key}' in one superstep; '{lossy.executor_id}' {did} it, "
            "which a reducer cannot combine with another write: use set_state with the change alone."
        )


def _reduced(key: str, declared: StateKey | None, reducer: Reducer, value: Any, write: Write) -> Any:
    if value is ABSENT:
        value = declared.initial() if declared is not None else ABSENT
    if value is ABSENT:
        return write.value
    try:
        return reducer(value, write.value)
    except Exception as error:
        try:
            error.add_note(f"raised by the reducer of state key '{key}' for what '{write.executor_id}' wrote")
        except Exception:
            pass  # it takes no notes, and is what the caller gets all the same
        raise


def _natural_factory(reducer: Reducer | None) -> Callable[[], Any] | None:
    try:
        return _NATURAL_FACTORIES.get(reducer)
    except TypeError:  # a callable object that cannot be hashed
        return None


def _names(writes: Sequence[Write]) -> str:
    return " and ".join(f"'{name}'" for name in dict.fromkeys(write.executor_id for write in writes))
