"""Parametrised pydantic models, such as `Box[int]`: each is a class of its own, kept through its origin.

Its type id is that of the origin with the arguments behind it, spelled exactly: for pydantic `Box[int | None]`,
`Box[Optional[int]]` and `Box[List[int]]`, `Box[list[int]]` are four classes, and a value comes back
as the one that it was. What no text can say (`Annotated` metadata, a `NewType`, an unregistered class) is
refused when a value is encoded, never dropped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Final

from branchpoint.codec import _pydantic
from branchpoint.codec._registry import TypeEntry, by_id, by_type, derived, entry_for_type, named
from branchpoint.codec._typeexpr import exact_arguments, loose_arguments, parse_arguments
from branchpoint.errors import (
    BranchpointError,
    DefinitionError,
    UnregisteredTypeError,
    UnsupportedValueError,
)

__all__ = ["derive", "derive_id"]

_MOST_MADE: Final = 1_000
_made = 0


def derive(cls: type[Any]) -> TypeEntry | None:
    """The entry of a parametrised model whose origin is registered without a codec of its own."""
    origin, arguments = _pydantic.parameters(cls)
    base = by_type.get(origin) if origin is not None else None
    if base is None or base.kind != "pydantic":
        return None
    encoder, decoder = _pydantic.codec_for(cls)
    text, error = _written(base, cls, arguments)
    entry = dataclasses.replace(
        base,
        cls=cls,
        type_id=f"{base.type_id}[{text}]",
        encoder=encoder if error is None else _refuse(error),
        decoder=decoder,
        refused="" if error is None else str(error),
    )
    derived[cls] = entry
    if error is None:
        earlier = named.get(entry.type_id)
        if earlier is None or earlier.type_id != entry.type_id:
            named[entry.type_id] = entry
    return entry


def _written(
    base: TypeEntry, cls: type[Any], arguments: tuple[Any, ...]
) -> tuple[str, BranchpointError | None]:
    """The text of the arguments, and with what values of the class are refused, if they are."""
    kind: type[BranchpointError] = UnsupportedValueError
    try:
        text = exact_arguments(arguments)
        again = base.cls[parse_arguments(text)]
        # The second: pydantic forgets classes and then makes another for the same arguments.
        if again is cls or again is base.cls[arguments]:
            return text, None
        reason = f"reading {text!r} gives another class"
    except (BranchpointError, TypeError, ValueError) as error:
        reason = str(error)
        if isinstance(error, UnregisteredTypeError):
            kind = UnregisteredTypeError
    try:
        text = loose_arguments(arguments)
    except DefinitionError:
        text = ", ".join(map(repr, arguments))
    return text, kind(
        f"the arguments of this generic model cannot be stored and read back ({reason}). Register this class "
        f"under a type_id of its own, as in register_state_type({base.cls.__name__}[...], type_id=...)"
    )


def _refuse(error: BranchpointError) -> Callable[[Any], Any]:
    def encode(value: Any) -> Any:
        raise type(error)(str(error))

    return encode


def derive_id(type_id: str) -> TypeEntry | None:
    """The entry of a parametrised model by its stored id, whether or not this process has met the class.

    The class that the program made is preferred: the one of exactly this spelling, else the only
    one that differs in spelling alone (as between two versions of a program). Without one, it is made.
    """
    origin, _, rest = type_id.partition("[")
    base = by_id.get(origin)
    if base is None or base.kind != "pydantic":
        return None
    try:
        arguments = parse_arguments(rest[:-1])
        if exact_arguments(arguments) != rest[:-1]:
            return None
        loose = loose_arguments(arguments)
        others = [entry for entry in _live(base) if loose_arguments(_arguments(entry)) == loose]
        entry = named.get(type_id)
        if entry is None:
            entry = others[0] if len(others) == 1 else _make(base, arguments)
    except (BranchpointError, TypeError, ValueError):
        return None
    if entry is None or entry.refused:
        return None
    named.setdefault(type_id, entry)
    return named[type_id]


def _make(base: TypeEntry, arguments: tuple[Any, ...]) -> TypeEntry | None:
    """The entry of a class that only data asked for; classes stay for ever, so data cannot have many made."""
    global _made
    if _made >= _MOST_MADE:
        return None
    _made += 1
    return entry_for_type(base.cls[arguments])


def _arguments(entry: TypeEntry) -> tuple[Any, ...]:
    return _pydantic.parameters(entry.cls)[1]


def _live(base: TypeEntry) -> Iterator[TypeEntry]:
    """The entries of the models that the program has made of this origin, and that can be kept."""
    for cls in base.cls.__subclasses__():
        if _pydantic.parameters(cls)[0] is base.cls:
            entry = entry_for_type(cls)
            if entry is not None and entry.cls is cls and not entry.refused and cls not in by_type:
                yield entry
