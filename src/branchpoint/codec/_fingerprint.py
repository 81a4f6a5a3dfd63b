"""Fingerprints: tokens in memory that are equal if and only if no change is visible.

A value met with nothing but exact `None`, bool, int, float, str, bytes, list, tuple and dict has its
marshal bytes (version 2, which depends on the value alone) as token. Everything else is walked:
containers of every kind, the attributes of registered and unregistered objects with their types, and
what an object says of itself by `__reduce__`. What cannot be taken apart is compared by identity.
"""

from __future__ import annotations

import copyreg
import enum
import marshal
import types
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any, Final

import msgspec

from branchpoint import errors
from branchpoint.codec._atomtokens import ATOM_TOKENS, Foreign, Given, Same, base_token
from branchpoint.codec._parts import Encoded, Part
from branchpoint.codec._registry import entry_for_type
from branchpoint.codec._shape import MAX_DEPTH, attributes, layout_of, type_name
from branchpoint.codec._stack import with_room

__all__ = ["fingerprint"]

_PLAIN_ATOMS: Final[frozenset[type]] = frozenset({type(None), bool, int, float, str, bytes})
_PLAIN: Final[frozenset[type]] = _PLAIN_ATOMS | {list, tuple, dict}
_DICTS: Final[frozenset[type]] = frozenset({dict, OrderedDict, Counter, defaultdict})
_OPAQUE: Final[frozenset[type]] = frozenset(
    {
        object,
        Encoded,
        Part,
        types.FunctionType,
        types.BuiltinFunctionType,
        types.ModuleType,
        types.CodeType,
    }
)
_MARSHAL_VERSION: Final = 2  # 3 and 4 write references, which depend on who else holds an object


def fingerprint(value: Any, *, containers_only: bool = False) -> object:
    """A token for comparing what `value` holds now with what it holds later.

    Guarantees:
        Two tokens are equal if and only if no change is visible between the two values: `1`, `1.0`
        and `True` differ, so do `0.0` and `-0.0`, bytes and bytearray, a list and a tuple, a class
        and its subclass, two orders of the keys of a dict; NaN equals itself. Whether two places
        share one object is not visible, except where that object is part of a cycle. Cycles are
        allowed. What cannot be taken apart (locks, clients written in C, functions) counts by
        identity, and the token holds a reference to it.

    Args:
        value: Any value, registered or not.
        containers_only: Walk builtin and `collections` containers and compare every other object
            by identity, for containers that hold services.

    Raises:
        UnsupportedValueError: The value nests too deeply for any stack.
    """
    if _is_plain(value):
        return marshal.dumps(value, _MARSHAL_VERSION)
    try:
        return with_room(lambda: _Walk(containers_only).token(value))
    except RecursionError:
        raise errors.UnsupportedValueError(
            f"A value of type {type_name(type(value))} nests too deeply to be compared. "
            "Keep deep structures as a flat list of nodes that refer to each other by id."
        ) from None


def _is_plain(value: Any) -> bool:
    """Whether marshal tells everything about `value`: only exact plain types, no cycle."""
    if type(value) in _PLAIN_ATOMS:
        return True
    level: list[Any] = [value]
    seen: set[int] = set()
    shared = False
    for _ in range(MAX_DEPTH + 1):
        deeper: list[Any] = []
        for item in level:
            cls = type(item)
            if cls in _PLAIN_ATOMS:
                continue
            if cls not in _PLAIN:
                return False
            key = id(item)
            if key in seen:
                shared = True
                continue
            seen.add(key)
            if cls is dict:
                deeper += item  # keys may be tuples
                deeper += item.values()
            else:
                deeper += item
        if not deeper or _PLAIN_ATOMS.issuperset(map(type, deeper)):
            return not shared or _is_tree(value)
        level = deeper
    return False


def _is_tree(root: Any) -> bool:
    """Whether a plain value, in which some container is met twice, has no cycle."""
    on_path = {id(root)}
    done: set[int] = set()
    stack = [(root, iter(_parts(root)))]
    while stack:
        value, parts = stack[-1]
        for part in parts:
            key = id(part)
            if type(part) in _PLAIN_ATOMS or key in done:
                continue
            if key in on_path:
                return False
            on_path.add(key)
            stack.append((part, iter(_parts(part))))
            break
        else:
            stack.pop()
            on_path.discard(id(value))
            done.add(id(value))
    return True


def _parts(value: Any) -> list[Any]:
    return [*value, *value.values()] if type(value) is dict else list(value)


class _Mark(enum.Enum):
    """Stands in a token for a container that is not walked (again)."""

    UP = 0  # the container that many levels further out: a cycle
    SEEN = 1  # the container met that many containers ago, part of a cycle not yet closed


_CLOSED: Final = 1 << 62


class _Walk:
    """One walk through one value.

    Each container is walked once. A finished one is used again by its token, so shared parts cost
    nothing and look the same as equal copies. References in a cycle are relative, so that the token
    of a whole cycle does not depend on where it was met; containers inside a cycle that is still
    open are forgotten when it closes (as in Tarjan's algorithm for strongly connected components).
    """

    __slots__ = ("containers_only", "count", "depth", "done", "keep", "low", "on_path", "open")

    def __init__(self, containers_only: bool) -> None:
        self.containers_only = containers_only
        self.count = 0  # containers met so far
        self.depth = 0
        self.low = _CLOSED  # the outermost level that the container being walked refers to
        self.on_path: dict[int, int] = {}
        self.done: dict[int, tuple[Any, int, int, int]] = {}  # token, size, number, low
        self.open: list[int] = []
        self.keep: list[Any] = []  # objects made on the way; their ids must not be reused

    def token(self, value: Any) -> Any:
        cls = type(value)
        if cls is str or value is None:
            return value
        atom = ATOM_TOKENS.get(cls)
        if atom is not None:
            token = atom(value)
            if type(token[-1]) is Foreign:
                return (*token[:-1], self.token(value.tzinfo))
            return token
        if cls is list or cls is tuple:
            if _PLAIN_ATOMS.issuperset(map(type, value)):
                return (cls, marshal.dumps(value, _MARSHAL_VERSION))
        elif cls in _OPAQUE or (cls not in _DICTS and isinstance(value, (type, enum.Enum))):
            return Same(value)
        key = id(value)
        level = self.on_path.get(key)
        if level is not None:
            self.low = min(self.low, level)
            return (_Mark.UP, self.depth - level)
        done = self.done.get(key)
        if done is not None:
            token, size, number, low = done
            if low == _CLOSED:
                self.count += size
                return token
            self.low = min(self.low, low)
            return (_Mark.SEEN, self.count - number)
        number, level, outer_low, opened = self.count, self.depth, self.low, len(self.open)
        self.count += 1
        self.depth += 1
        self.low = _CLOSED
        self.on_path[key] = level
        token = self._content(value, cls)
        del self.on_path[key]
        self.depth = level
        low = self.low
        if low >= level:
            low = _CLOSED
            for other in self.open[opened:]:
                del self.done[other]
            del self.open[opened:]
        else:
            self.open.append(key)
        self.done[key] = (token, self.count - number, number, low)
        self.low = min(outer_low, low)
        return token

    # Each of these is one frame per level, so they loop by hand instead of by comprehensions.

    def _content(self, value: Any, cls: type) -> Any:
        if cls in _DICTS:
            keys: list[Any] = []
            items: list[Any] = []
            for key, item in value.items():
                keys.append(key if type(key) is str else self.token(key))
                items.append(self.token(item))
            factory = Same(value.default_factory) if cls is defaultdict else None
            return (cls, factory, tuple(keys), tuple(items))
        if cls is list or cls is tuple:
            items = []
            for item in value:
                items.append(self.token(item))
            return (cls, tuple(items))
        if cls is set or cls is frozenset:
            tokens = set()
            for item in value:
                tokens.add(self.token(item))
            return (cls, len(value), frozenset(tokens))  # two NaN have one token
        if cls is deque:
            items = []
            for item in value:
                items.append(self.token(item))
            return (cls, value.maxlen, tuple(items))
        if cls is slice:
            return (cls, self.token(value.start), self.token(value.stop), self.token(value.step))
        if self.containers_only:
            return Same(value)
        return self._object(value, cls)

    def _object(self, value: Any, cls: type) -> Any:
        if cls is types.MethodType:
            return (cls, Same(value.__func__), self.token(value.__self__))
        if cls is types.MappingProxyType:
            return (cls, self._kept(dict(value)))
        entry = entry_for_type(cls)
        if entry is not None and entry.fingerprint is not None:
            return (cls, Given(entry.fingerprint(value)))
        if entry is not None and entry.kind == "custom" and not entry.immutable:
            try:
                return (cls, self._kept(entry.encoder(value)))  # what is saved is what counts
            except RecursionError:
                raise
            except Exception:
                pass  # in a state that cannot be saved; whoever saves it says so, here its attributes count
        content: Any = None
        if not layout_of(cls).pure:
            content = base_token(value)
            if content is not None and type(content[1]) is tuple and type(content[1][-1]) is Foreign:
                content = (content[0], content[1][:-1], self.token(value.tzinfo))
            if content is None:
                content = self._base_container(value)
            if content is None:
                return self._reduced(value, cls)
        elif entry is None and _says_itself(cls) and not issubclass(cls, msgspec.Struct):
            return self._reduced(value, cls)
        found: list[tuple[str, Any]] = []
        for name, item in attributes(value):
            found.append((name, self.token(item)))
        found.sort(key=_name)  # in which order attributes were first set is not visible
        return (cls, content, tuple(found))

    def _base_container(self, value: Any) -> Any:
        """What an instance of a subclass of a container holds, whatever it overrides."""
        if isinstance(value, dict):
            items = OrderedDict.items(value) if isinstance(value, OrderedDict) else dict.items(value)
            factory = value.default_factory if isinstance(value, defaultdict) else None
            return (dict, Same(factory), self._kept(list(items)))
        if isinstance(value, list):
            return (list, self._kept(list.copy(value)))
        if isinstance(value, tuple):
            return (tuple, self._kept(tuple.__getitem__(value, slice(None))))
        if isinstance(value, deque):
            return (deque, value.maxlen, self._kept(list(deque.__iter__(value))))
        if isinstance(value, (set, frozenset)):
            base: Any = set if isinstance(value, set) else frozenset
            return (base, self._kept(base(base.__iter__(value))))
        return None

    def _reduced(self, value: Any, cls: type) -> Any:
        """What the object would be pickled or copied from; its identity if it refuses."""
        reduce = copyreg.dispatch_table.get(cls)
        try:
            reduced: Any = value.__reduce_ex__(4) if reduce is None else reduce(value)
        except RecursionError:
            raise
        except Exception:
            return Same(value)
        if not isinstance(reduced, tuple):  # the name of a global: there is only one such object
            return Same(value)
        told: list[Any] = [
            list(part) if place in (3, 4) and part is not None else part for place, part in enumerate(reduced)
        ]
        return (cls, self._kept(told))

    def _kept(self, made: Any) -> Any:
        self.keep.append(made)
        return self.token(made)


def _name(attribute: tuple[str, Any]) -> str:
    return str(attribute[0])


def _says_itself(cls: Any) -> bool:
    """Whether a class defines how it is reduced, so that its attributes are not the whole story."""
    plain: Any = object
    return (
        cls.__reduce_ex__ is not plain.__reduce_ex__
        or cls.__reduce__ is not plain.__reduce__
        or cls in copyreg.dispatch_table
    )
