"""Declared types as text, so that a request says what kind of answer it takes in any process.

`type_expression` writes `int`, `str | None`, `list[shop.order]`, `Literal["a", 1]`. The text is made of
the names of builtin and standard types listed here and of the type ids of registered classes.
`parse_type_expression` reads it back with a parser of its own: nothing is imported or evaluated.

What a text cannot say is left out by rule: `Annotated` metadata, the name of a `NewType`, a type
variable (its bound stands for it). `Optional` and `Union` are written with `|`.

The arguments of a pydantic model are the exception, since another spelling makes another class: they
are written exactly or not at all. There `A | B` means what Python's operator gives, other
spellings are `typing.Union[A, B]`, `typing.List[A]`, `NoneType`.
"""

from __future__ import annotations

import functools
import json
import operator
import re
import types
import typing
from enum import Enum
from typing import Any, Final

from branchpoint import errors
from branchpoint.codec._pydantic import is_model
from branchpoint.codec._registry import entry_for_id, entry_for_type
from branchpoint.codec._shape import type_name
from branchpoint.codec._typenames import ARITY, EXACT, NAMES, SPELLINGS, TYPES, bare, is_union

__all__ = [
    "describe_type", "exact_arguments", "loose_arguments", "parse_arguments", "parse_type_expression",
    "type_expression",
]  # fmt: skip

_TOKEN: Final = re.compile(r'\s*(b?"(?:[^"\\]|\\.)*"|[\[\]|,]|[^\s\[\]|,"\']+)')
_SPACE: Final = re.compile(r"\s*")
_INT: Final = re.compile(r"-?(?:0|[1-9][0-9]*)")
_MAX_NESTING: Final = 64
_LONGEST: Final = 2**20
_LONGEST_EXACT: Final = 2**13  # a union is made by joining its members one by one


def type_expression(tp: Any) -> str:
    """Write a declared type as text.

    Guarantees:
        The same type gives the same text in every process. `parse_type_expression` of it gives an
        equal type where all its classes are registered or builtin.

    Args:
        tp: A class, `None`, `Any`, a union, a `Literal` or a generic over these. An unregistered
            class is written as `module.qualname`; parsing that raises UnregisteredTypeError.

    Raises:
        DefinitionError: The type has no text: an unresolved forward reference, a `Callable`, and
            whatever else is not listed.
    """
    tp = bare(tp)
    if tp is None or tp is type(None):
        return "None"
    if is_union(tp):
        return " | ".join(dict.fromkeys(type_expression(member) for member in typing.get_args(tp)))
    origin = typing.get_origin(tp)
    if origin is typing.Literal:
        # Sorted: typing takes two orders for one type, and gives back whichever it met first.
        return f"Literal[{', '.join(sorted(_literal_text(value) for value in typing.get_args(tp)))}]"
    if origin is not None:
        if not hasattr(tp, "__args__"):  # typing.List without arguments
            return _class_text(origin)
        arguments = typing.get_args(tp)
        if not arguments:
            return f"{_class_text(origin)}[()]"
        return f"{_class_text(origin)}[{', '.join(_argument_text(argument) for argument in arguments)}]"
    return _class_text(tp)


def describe_type(tp: Any) -> str:
    """The type expression for a message; never raises."""
    try:
        return type_expression(tp)
    except errors.DefinitionError:
        return repr(tp)


def _argument_text(argument: Any) -> str:
    return "..." if argument is Ellipsis else type_expression(argument)


def _class_text(cls: Any) -> str:
    known = NAMES.get(cls) if isinstance(cls, typing.Hashable) else None
    if known is not None:
        return known
    if not isinstance(cls, type):
        raise errors.DefinitionError(
            f"{cls!r} cannot be written as a type expression. Declare a class, None, Any, a union, a Literal "
            "or a list, dict, tuple or set of these; a forward reference must name something at module level."
        )
    entry = entry_for_type(cls)
    if entry is None:
        return type_name(cls)
    if entry.type_id in TYPES:
        raise errors.DefinitionError(
            f"{type_name(cls)}: its type id {entry.type_id!r} is the name of another type in type "
            "expressions; register it under another type_id."
        )
    return entry.type_id


def _literal_text(value: Any) -> str:
    if isinstance(value, Enum):
        text = f"{_class_text(type(value))}.{value.name}"
        if _TOKEN.fullmatch(text) is None:
            raise errors.DefinitionError(
                f"Literal[{value!r}] cannot be written: its name is not an identifier"
            )
        return text
    if value is None or type(value) in (bool, int):
        return repr(value)
    if type(value) is bytes:
        return "b" + json.dumps(value.decode("latin-1"))
    if type(value) is str:
        return json.dumps(value)
    raise errors.DefinitionError(f"Literal[{value!r}] cannot be written as a type expression")


def loose_arguments(arguments: tuple[Any, ...]) -> str:
    """The arguments of a generic class, whatever their spelling is."""
    return ", ".join(map(_argument_text, arguments))


def exact_arguments(arguments: tuple[Any, ...]) -> str:
    """The arguments of a pydantic model, from which `parse_arguments` makes equal ones.

    Raises:
        DefinitionError: An argument has no text that says all of it.
        UnregisteredTypeError: A class in an argument is not registered.
    """
    return ", ".join(_exact(argument, outer=True) for argument in arguments)


def _exact(tp: Any, *, outer: bool = False) -> str:
    if tp is Ellipsis:
        return "..."
    if tp is None or tp is type(None):
        return "None" if tp is None else "NoneType"
    if bare(tp) is not tp:
        raise errors.DefinitionError(f"{tp!r} says more than a stored name can")
    arguments = typing.get_args(tp)
    if is_union(tp):
        members = ["None" if member is type(None) else _exact(member) for member in arguments]
        # Inside other arguments, typing and pydantic take both spellings of a union for one.
        if not outer or type(_joined(arguments)) is type(tp):
            return " | ".join(members)
        return f"typing.Union[{', '.join(members)}]"
    origin = typing.get_origin(tp)
    if origin is None or origin is typing.Literal:
        name = type_expression(tp)
        if isinstance(tp, type) and tp not in NAMES:
            entry = entry_for_type(tp)
            if entry is None or entry.refused or name in EXACT:
                if entry is None:
                    raise errors.UnregisteredTypeError(f"{name!r} is not registered")
                raise errors.DefinitionError(f"{name!r}: {entry.refused or 'the name means something else'}")
        return name
    known = origin in NAMES and type(tp) is not types.GenericAlias
    head = SPELLINGS[origin] if known and origin in SPELLINGS else _class_text(origin)
    if not hasattr(tp, "__args__"):
        return head
    return f"{head}[{', '.join(map(_exact, arguments)) or '()'}]"


def _joined(members: tuple[Any, ...]) -> Any:
    """`A | B | ...`, which is not always what `Union[A, B, ...]` is."""
    try:
        return functools.reduce(operator.or_, members)
    except TypeError:
        return typing.Union[members]  # noqa: UP007


def parse_arguments(text: str) -> tuple[Any, ...]:
    """Read what `exact_arguments` wrote.

    Raises:
        UnregisteredTypeError: The text names a class that is not registered in this process.
        CorruptCheckpointError: The text is no list of arguments.
    """
    parser = _Parser(text, exact=True)
    arguments = [parser.union(0)]
    while parser.token == ",":
        parser.advance()
        arguments.append(parser.union(0))
    if parser.token is not None:
        raise parser.fault()
    return tuple(arguments)


def parse_type_expression(text: str) -> Any:
    """Read a text that `type_expression` wrote.

    Returns:
        The type: a class, `Any`, a union, a `Literal` or a generic alias.

    Raises:
        UnregisteredTypeError: The text names a class that is not registered in this process.
        CorruptCheckpointError: The text is no type expression.
    """
    if not isinstance(text, str):
        raise errors.CorruptCheckpointError(f"a type expression is a text, not a {type_name(type(text))}")
    parser = _Parser(text)
    tp = parser.union(0)
    if parser.token is not None:
        raise parser.fault()
    return type(None) if tp is None else tp


class _Parser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, text: str, exact: bool = False) -> None:
        self.text = text
        self.exact = exact
        self.place = 0
        self.token: str | None = None
        if len(text) > (_LONGEST_EXACT if exact else _LONGEST):
            raise self.fault()
        self.advance()

    def fault(self) -> errors.CorruptCheckpointError:
        return errors.CorruptCheckpointError(
            f"{self.text[:200]!r} is no type expression (at {self.token or 'its end'!r}). It was damaged or "
            "written by something else."
        )

    def unknown(self, name: str) -> errors.UnregisteredTypeError:
        return errors.UnregisteredTypeError(
            f"the type expression {self.text[:200]!r} names {name!r}, which is not registered here. Import "
            "the module that registers it with `register_state_type` first."
        )

    def advance(self) -> None:
        if _SPACE.fullmatch(self.text, self.place):
            self.token, self.place = None, len(self.text)
            return
        match = _TOKEN.match(self.text, self.place)
        if match is None:
            self.token = self.text[self.place : self.place + 200]
            raise self.fault()
        self.token, self.place = match[1], match.end()

    def take(self, expected: str) -> None:
        if self.token != expected:
            raise self.fault()
        self.advance()

    def union(self, depth: int) -> Any:
        if depth > _MAX_NESTING:
            raise self.fault()
        members = [self.term(depth)]
        while self.token == "|":
            self.advance()
            members.append(self.term(depth))
        if len(members) == 1:
            return members[0]
        return _joined(tuple(members)) if self.exact else typing.Union[tuple(members)]  # noqa: UP007

    def name(self) -> str:
        name = self.token
        if name is None or name[-1] in '[]|,"':
            raise self.fault()
        self.advance()
        return name

    def term(self, depth: int) -> Any:
        name = self.name()
        if name == "Literal":
            return self.literal()
        known = TYPES.get(name)
        if known is None and self.exact:
            known = EXACT.get(name)
        if known is None and name != "None":
            entry = entry_for_id(name)
            if entry is None:
                raise self.unknown(name)
            known = entry.cls
        if self.token != "[":
            if name == "typing.Union":
                raise self.fault()
            return known
        self.advance()
        exact, self.exact = self.exact, self.exact or is_model(known)
        arguments = self.arguments(name, depth)
        self.exact = exact
        self.take("]")
        return self.generic(name, known, arguments)

    def arguments(self, name: str, depth: int) -> tuple[Any, ...]:
        arguments: list[Any] = []
        several = name in ("tuple", "typing.Tuple")
        if several and self.token == "()":
            self.advance()
            return ()
        arguments.append(self.union(depth + 1))
        while self.token == ",":
            self.advance()
            if several and len(arguments) == 1 and self.token == "...":
                self.advance()
                arguments.append(Ellipsis)
                break
            arguments.append(self.union(depth + 1))
        return tuple(arguments)

    def generic(self, name: str, known: Any, arguments: tuple[Any, ...]) -> Any:
        if name in TYPES or name == "None":
            if name != "tuple" and ARITY.get(name) != len(arguments):
                raise self.fault()
            return types.GenericAlias(known, arguments)
        if is_model(known):
            entry = entry_for_id(f"{name}[{exact_arguments(arguments)}]")
            if entry is not None:
                return entry.cls
        try:
            return known[arguments]
        except TypeError:  # the class takes other arguments, or none
            raise self.fault() from None

    def literal(self) -> Any:
        self.take("[")
        values = [self.value()]
        while self.token == ",":
            self.advance()
            values.append(self.value())
        self.take("]")
        return typing.Literal[tuple(values)]

    def value(self) -> Any:
        token = self.token
        if token is None or token in ("[", "]", "|", ","):
            raise self.fault()
        if token.endswith('"'):
            try:
                text = json.loads(token.removeprefix("b"))
                value = text.encode("latin-1") if token.startswith("b") else text
            except ValueError:
                raise self.fault() from None
        elif token in _CONSTANTS:
            value = _CONSTANTS[token]
        elif _INT.fullmatch(token) and len(token) < 4000:  # above, int() refuses or takes long
            value = int(token)
        else:
            value = self.member(token)
        self.advance()
        return value

    def member(self, token: str) -> Any:
        type_id, _, name = token.rpartition(".")
        entry = entry_for_id(type_id)
        if entry is None:
            raise self.unknown(type_id)
        if not issubclass(entry.cls, Enum) or name not in entry.cls.__members__:
            raise self.fault()
        return entry.cls.__members__[name]


_CONSTANTS: Final[dict[str, Any]] = {"None": None, "True": True, "False": False}
