"""Types at run time: does a value fit a type, may one type flow into another, what is it called.

Pure functions. They know the forms that handlers are annotated with: classes, unions, `Any`,
`None`, `Literal`, `Annotated`, `NewType`, `TypedDict`, and generics, whose items are looked at.
"""

from __future__ import annotations

import collections
import types
import typing
from collections import abc
from typing import Any, Literal, NewType, Union, get_args, get_origin

import typing_extensions

__all__ = [
    "alternatives",
    "bare",
    "compatible",
    "is_type_form",
    "matches",
    "readable",
    "run_time_form",
    "unusable",
]

_UNIONS = (Union, types.UnionType)
_NEVER = (typing.Never, typing.NoReturn)
_TYPE_PARAMETERS: tuple[Any, ...] = (
    type(typing.TypeVar("_T")),
    type(typing_extensions.TypeVar("_T")),
    typing.ParamSpec,
    typing.TypeVarTuple,
)
# `type X = ...` of Python 3.12, and its backport, which may be another class.
_ALIASES = (
    typing_extensions.TypeAliasType,
    getattr(typing, "TypeAliasType", typing_extensions.TypeAliasType),
)
_ITEMS: frozenset[Any] = frozenset({
    list, set, frozenset, collections.deque, collections.Counter, collections.UserList,
    abc.Collection, abc.Sequence, abc.MutableSequence, abc.Set, abc.MutableSet, abc.Iterable, abc.Container,
    abc.Reversible, abc.KeysView, abc.ValuesView,
})  # fmt: skip
_PAIRS: frozenset[Any] = frozenset({
    dict, collections.OrderedDict, collections.defaultdict, collections.ChainMap, collections.UserDict,
    abc.Mapping, abc.MutableMapping,
})  # fmt: skip


def matches(value: Any, tp: Any, *, strict: bool = False) -> bool:
    """Say whether a value is of a type.

    Items of lists, sets, dicts and tuples are looked at, one by one. Of other generics only the
    class is. A `Literal` wants the same type and an equal value.

    Args:
        value: Any value.
        tp: A class, or a form of `typing`.
        strict: Whether a `bool` is refused where an `int` is asked for, at any depth.
    """
    if tp is Any or tp is object:
        return True
    if tp is None or tp is types.NoneType:
        return value is None
    if strict and tp is int and type(value) is bool:
        return False
    origin = get_origin(tp)
    if origin is None:
        return _matches_plain(value, tp, strict)
    args = get_args(tp)
    if origin in _UNIONS:
        return any(matches(value, arg, strict=strict) for arg in args)
    if origin is Literal:
        return any(type(value) is type(arg) and value == arg for arg in args)
    if origin is typing.Annotated:
        return matches(value, args[0], strict=strict)
    if origin is type:
        return isinstance(value, type) and compatible(value, args[0])
    if not isinstance(value, origin):
        return False
    if not args and tp is not typing.Tuple:  # noqa: UP006 - the bare form; `tuple[()]` is the empty tuple
        return origin is not tuple or len(value) == 0
    return _items_match(value, origin, args, strict)


def _matches_plain(value: Any, tp: Any, strict: bool) -> bool:
    if isinstance(tp, NewType):
        return matches(value, tp.__supertype__, strict=strict)
    if _is_alias(tp):
        return matches(value, tp.__value__, strict=strict)
    if tp in _NEVER:
        return False
    if typing_extensions.is_typeddict(tp):
        return isinstance(value, dict) and _fits_typed_dict(value, tp, strict)
    return isinstance(value, tp)


def _items_match(value: Any, origin: Any, args: tuple[Any, ...], strict: bool) -> bool:
    if origin is tuple and args:
        if len(args) == 2 and args[1] is Ellipsis:
            return all(matches(item, args[0], strict=strict) for item in value)
        return len(value) == len(args) and all(
            matches(item, arg, strict=strict) for item, arg in zip(value, args, strict=True)
        )
    if origin in _PAIRS and len(args) == 2:
        key_type, value_type = args
        return all(
            matches(key, key_type, strict=strict) and matches(item, value_type, strict=strict)
            for key, item in value.items()
        )
    # An iterator would be used up by looking at it: only what can be walked twice is walked.
    if origin in _ITEMS and len(args) == 1 and isinstance(value, abc.Collection):
        return all(matches(item, args[0], strict=strict) for item in value)
    return True


def _fits_typed_dict(value: dict[Any, Any], tp: Any, strict: bool) -> bool:
    hints = typing_extensions.get_type_hints(tp, include_extras=True)
    if not value.keys() <= hints.keys():
        return False
    for key, hint in hints.items():
        if key not in value:
            # `__required_keys__` does not know a `NotRequired` that was written as text.
            qualifier: Any = get_origin(hint)
            if qualifier is not typing.NotRequired and key in tp.__required_keys__:
                return False
        elif not matches(value[key], _unqualified(hint), strict=strict):
            return False
    return True


def _unqualified(hint: Any) -> Any:
    qualified = get_origin(hint) in (typing.Required, typing.NotRequired, typing_extensions.ReadOnly)
    return get_args(hint)[0] if qualified else hint


def compatible(source: Any, target: Any) -> bool:
    """Say whether every value of the source type may go where the target type is asked for.

    Where one side says nothing (`Any`, or a container without item types), the answer is yes.
    Item types are taken as covariant: values travel by copy, so nobody can put a wrong item in.
    """
    source, target = bare(source), bare(target)
    if source is Any or target is Any or target is object or source in _NEVER:
        return True
    source_origin, target_origin = get_origin(source), get_origin(target)
    if source_origin in _UNIONS:
        return all(compatible(arg, target) for arg in get_args(source))
    if source_origin is Literal:
        return all(matches(value, target) for value in get_args(source))
    if target_origin in _UNIONS:
        return any(compatible(source, arg) for arg in get_args(target))
    if target_origin is Literal:
        return False
    if source_origin is type or target_origin is type:
        return _compatible_classes(source, target)
    if not _is_subclass(source_origin or source, target_origin or target):
        return False
    return _compatible_args(source, target)


def bare(tp: Any) -> Any:
    """Take off what does not matter at run time: `Annotated`, `NewType`, aliases."""
    while True:
        if tp is None:
            return types.NoneType
        if get_origin(tp) is typing.Annotated:
            tp = get_args(tp)[0]
        elif isinstance(tp, NewType):
            tp = tp.__supertype__
        elif _is_alias(tp):
            tp = tp.__value__
        else:
            return tp


def run_time_form(tp: Any) -> Any:
    """Return a value to compare: two types with an equal one take the same values at run time."""
    if isinstance(tp, list):  # the parameters of a generic over a ParamSpec
        return tuple(run_time_form(item) for item in tp)
    tp = bare(tp)
    origin, args = get_origin(tp), get_args(tp)
    if origin in _UNIONS:
        forms = [run_time_form(arg) for arg in args]
        return (Union, frozenset().union(*(form[1] if _is_union_form(form) else [form] for form in forms)))
    if origin is None or origin is Literal or origin is abc.Callable:
        return tp
    if not args and (origin is not tuple or tp is typing.Tuple):  # noqa: UP006 - the bare form
        return origin
    return (origin, *(run_time_form(arg) for arg in args))


def _is_union_form(form: Any) -> bool:
    return isinstance(form, tuple) and form[0] is Union


def _compatible_classes(source: Any, target: Any) -> bool:
    if get_origin(source) is type and get_origin(target) is type:
        return compatible(get_args(source)[0], get_args(target)[0])
    return _is_subclass(get_origin(source) or source, get_origin(target) or target)


def _is_subclass(source: Any, target: Any) -> bool:
    if source is target:
        return True
    if typing_extensions.is_typeddict(source):
        source = dict
    try:
        return issubclass(source, target)
    except TypeError:  # a protocol with data members, or something that is no class
        return bool(source == target)


def _compatible_args(source: Any, target: Any) -> bool:
    given, wanted = get_args(source), get_args(target)
    if not given or not wanted:
        return True
    if get_origin(source) is tuple:
        return _compatible_tuples(given, wanted, whole=get_origin(target) is tuple)
    if len(given) != len(wanted):
        return True  # classes with other parameters: nothing can be said of them
    return all(compatible(one, other) for one, other in zip(given, wanted, strict=True))


def _compatible_tuples(given: tuple[Any, ...], wanted: tuple[Any, ...], *, whole: bool) -> bool:
    endless = len(given) == 2 and given[1] is Ellipsis
    items = given[:1] if endless else given
    if not whole or (len(wanted) == 2 and wanted[1] is Ellipsis):
        return all(compatible(item, wanted[0]) for item in items)
    if endless or len(items) != len(wanted):
        return False
    return all(compatible(one, other) for one, other in zip(items, wanted, strict=True))


def alternatives(tp: Any) -> tuple[Any, ...]:
    """Return the members of a union, flat, in order; of another type, that type; of `Never`, none."""
    if tp in _NEVER:
        return ()
    if tp is None:
        return (types.NoneType,)
    if get_origin(tp) in _UNIONS:
        return tuple(dict.fromkeys(found for arg in get_args(tp) for found in alternatives(arg)))
    return (tp,)


def unusable(tp: Any) -> str | None:
    """Say why a value cannot be checked against this type at run time, or None when it can."""
    if isinstance(tp, _TYPE_PARAMETERS):
        return f"'{tp}' is a type variable; name a concrete type"
    if tp in _NEVER:
        return "no value is of type Never"
    if tp is Any or tp is None or tp is Ellipsis or isinstance(tp, NewType) or _is_alias(tp):
        return None
    origin = get_origin(tp)
    if origin is Literal:
        return None
    if origin is typing.Annotated:
        return unusable(get_args(tp)[0])
    if origin is None and not isinstance(tp, type):
        return f"{tp!r} is not a type"
    if _is_unchecked_protocol(origin or tp):
        return f"protocol '{readable(tp)}' cannot be checked at run time; decorate it with @runtime_checkable"
    if origin is abc.Callable:
        return None
    return next((reason for arg in get_args(tp) if (reason := unusable(arg)) is not None), None)


def _is_unchecked_protocol(tp: Any) -> bool:
    return typing_extensions.is_protocol(tp) and not getattr(tp, "_is_runtime_protocol", False)


def is_type_form(value: Any) -> bool:
    """Say whether something is a type or a form of `typing`, not a value."""
    return (
        isinstance(value, type | NewType)
        or value is Any
        or value in _NEVER
        or get_origin(value) is not None
        or _is_alias(value)
    )


def _is_alias(tp: Any) -> bool:
    return isinstance(tp, _ALIASES)


def readable(tp: Any) -> str:
    """Return the name of a type as a person would write it, without modules: `list[Order] | None`."""
    if tp is None or tp is types.NoneType:
        return "None"
    if tp is Ellipsis:
        return "..."
    origin, args = get_origin(tp), get_args(tp)
    if origin in _UNIONS:
        return " | ".join(readable(arg) for arg in args)
    if origin is Literal:
        return f"Literal[{', '.join(repr(arg) for arg in args)}]"
    if origin is typing.Annotated:
        return readable(args[0])
    if origin is not None and args:
        return f"{readable(origin)}[{', '.join(_readable_argument(arg) for arg in args)}]"
    name = getattr(tp, "__qualname__", None) or getattr(tp, "__name__", None)
    return name.rpartition("<locals>.")[2] if isinstance(name, str) else str(tp).replace("typing.", "")


def _readable_argument(arg: Any) -> str:
    return f"[{', '.join(readable(item) for item in arg)}]" if isinstance(arg, list) else readable(arg)
