"""Where in a value the trouble is; only asked when a value was refused, so it may take its time."""

from __future__ import annotations

import copy
import datetime
import pathlib
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any, Final

from branchpoint.codec._immutable import ATOMS
from branchpoint.codec._registry import entry_for_type
from branchpoint.codec._shape import MAX_DEPTH, children, step, type_name

__all__ = ["blame", "describe_depth", "text_without_form"]

_CONTAINERS: Final[frozenset[type]] = frozenset(
    {list, tuple, dict, set, frozenset, deque, OrderedDict, Counter, defaultdict}
)
_LONGEST_WAY: Final = 64


def blame(root: Any, refused: Any, path: str) -> tuple[str, Any]:
    """The path to the innermost object that cannot be copied, and that object."""
    where = _locate(root, refused, path)
    seen = {id(refused)}
    while True:
        for key, part in children(refused):
            if id(part) not in seen and not _can_deepcopy(part):
                seen.add(id(part))
                where, refused = step(where, key), part
                break
        else:
            return where, refused


def _can_deepcopy(value: Any) -> bool:
    try:
        copy.deepcopy(value)
    except Exception:
        return False
    return True


def _locate(root: Any, wanted: Any, path: str) -> str:
    """The shortest path from `root` to the very object `wanted`."""
    seen = {id(root)}
    level = [(path, root)]
    while level:
        deeper = []
        for where, value in level:
            if value is wanted:
                return where
            for key, part in children(value):
                if type(part) not in ATOMS and id(part) not in seen:
                    seen.add(id(part))
                    deeper.append((step(where, key), part))
        level = deeper
    return path


def describe_depth(root: Any, path: str) -> str:
    """Say where `root` contains itself, or that it is too deep; in time and memory of its size, however deep."""
    keys: list[Any] = []  # the way to where the walk is
    ways: dict[int, int] = {id(root): 0}  # on it: how many of the keys lead there
    done: set[int] = set()
    stack = [(root, children(root))]
    deep = ""
    while stack:
        value, parts = stack[-1]
        for key, part in parts:
            if type(part) in ATOMS or id(part) in done:
                continue
            if id(part) in ways:
                again = _path(path, keys[: ways[id(part)]])
                return (
                    f"{_path(path, [*keys, key])}: this {type_name(type(part))} contains itself (it is "
                    f"{again or 'the value'} again). A value must be a tree: keep an id or a "
                    "name instead of the object."
                )
            keys.append(key)
            ways[id(part)] = len(keys)
            # An unregistered object may refer to itself: copy.deepcopy keeps that.
            walked = type(part) in _CONTAINERS or entry_for_type(type(part)) is not None
            stack.append((part, children(part) if walked else iter(())))
            if len(stack) > MAX_DEPTH and not deep:
                deep = _path(path, keys[:8])
            break
        else:
            stack.pop()
            done.add(id(value))
            ways.pop(id(value), None)
            if keys:
                keys.pop()
    return (
        f"{deep or path or 'the value'}: a value of type {type_name(type(root))} nests deeper than {MAX_DEPTH} "
        "levels. Keep deep structures as a flat list of nodes that refer to each other by id."
    )


def _path(path: str, keys: list[Any]) -> str:
    for key in keys[:_LONGEST_WAY]:
        path = step(path, key)
    return path if len(keys) <= _LONGEST_WAY else f"{path}..."


def text_without_form(root: Any, path: str) -> tuple[str, Any] | None:
    """The path to a value in `root` whose text has no UTF-8 form, and that value; None if none is met."""
    level = [(path, root)]
    seen: set[int] = set()
    kept: list[Any] = []  # what encoders made; their ids must not be reused
    while level:
        deeper = []
        for where, value in level:
            if _lacks_form(value):
                return where, value
            if type(value) in ATOMS or id(value) in seen:
                continue
            seen.add(id(value))
            entry = entry_for_type(type(value))
            if entry is not None and entry.kind == "custom":
                try:
                    payload = entry.encoder(value)
                except Exception:  # then it was not reached
                    payload = None
                kept.append(payload)
                deeper.append((where, payload))
            elif entry is not None or type(value) in _CONTAINERS:
                deeper.extend((step(where, key), part) for key, part in children(value))
        level = deeper
    return None


def _lacks_form(value: Any) -> bool:
    texts: tuple[str | None, ...] = ()
    if isinstance(value, str):
        texts = (str.__str__(value),)
    elif isinstance(value, pathlib.PurePath):
        texts = (str(value),)
    elif isinstance(value, (datetime.datetime, datetime.time, datetime.timezone)):
        zone = value if isinstance(value, datetime.timezone) else value.tzinfo
        texts = (zone.tzname(None) if type(zone) is datetime.timezone else None,)
    for text in texts:
        try:
            (text or "").encode()
        except UnicodeEncodeError:
            return True
    return False
