"""Decoding: stored bytes to fresh live values.

Only plain and registered values are built. Every shape is checked; what encoding would not write is
a flaw, reported with its path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from branchpoint.codec._defaults import FieldMismatch
from branchpoint.codec._flaw import Flaw
from branchpoint.codec._registry import TypeEntry, entry_for_id
from branchpoint.codec._shape import MAX_DEPTH, type_name
from branchpoint.codec._source import Source, load, reference_in
from branchpoint.codec._stack import has_room
from branchpoint.codec._wiretree import any_list, joined_dict, joined_list, number, tag_in
from branchpoint.errors import BranchpointError, DataError, UnknownVersionError, UnregisteredTypeError

__all__ = ["Reader", "readers"]

readers: dict[str, Callable[[Reader, Any], Any]] = {}
"""Builtin tag -> how its payload becomes a value."""

_NONE: Final = type(None)


class Reader:
    """One decoding of what a source holds.

    Attributes:
        depth: How many containers stand around the value that is read.
        limit: The depth at which a container is refused.
    """

    __slots__ = ("depth", "limit", "notation", "parts", "source")

    def __init__(self, source: Source, limit: int = MAX_DEPTH) -> None:
        self.source = source
        self.notation = source.notation
        self.parts = source.parts
        self.depth = 0
        self.limit = limit

    def read(self) -> Any:
        """The value of the source."""
        return self.value(load(self.notation, self.source.data))

    def enter(self) -> None:
        """Count one level more; whoever leaves it sets the depth back."""
        if self.depth > self.limit:
            raise Flaw(f"it nests deeper than {MAX_DEPTH} levels, which no value that is kept does")
        self.depth += 1

    def value(self, tree: Any) -> Any:
        """The value of a wire tree; plain containers of the tree are reused."""
        kind = type(tree)
        if kind is list:
            return self.items(tree)
        if kind is dict:
            return self.dict_(tree)
        if kind is str or kind is bool or kind is _NONE:
            return tree
        return number(tree, kind)

    def items(self, tree: list[Any]) -> list[Any]:
        """The items of a list, in place."""
        self.enter()
        place = 0
        try:
            for place, item in enumerate(tree):
                kind = type(item)
                if kind is str or kind is bool or kind is _NONE:
                    continue
                if kind is dict:
                    tree[place] = self.dict_(item)
                elif kind is list:
                    self.items(item)
                else:
                    number(item, kind)
        except Flaw as flaw:
            flaw.steps.append(place)
            raise
        self.depth -= 1
        return tree

    def dict_(self, tree: dict[str, Any]) -> Any:
        """The value of a dict of the wire: a dict, a reference, a cut value or a tag."""
        for key in tree:
            if key[:1] == "$" if type(key) is str else True:
                return self._special(tree)
            break
        return self._entries(tree)

    def _entries(self, tree: dict[str, Any]) -> dict[str, Any]:
        self.enter()
        key: Any = None
        try:
            for key, item in tree.items():
                if type(key) is not str or (key < "%" and key[:1] == "$"):
                    raise Flaw("a plain dict has text keys that do not begin with '$'")
                kind = type(item)
                if kind is str or kind is bool or kind is _NONE:
                    continue
                if kind is dict:
                    tree[key] = self.dict_(item)
                elif kind is list:
                    self.items(item)
                else:
                    number(item, kind)
        except Flaw as flaw:
            flaw.steps.append(key)
            raise
        self.depth -= 1
        return tree

    def _special(self, tree: dict[str, Any]) -> Any:
        digest = reference_in(tree)
        if digest is not None:
            return self.value(self.source.tree(digest))
        if "$l" in tree:
            return self.items(self.list_tree(tree))
        if "$d" in tree:
            return self._entries(joined_dict(self.source, tree))
        type_id, version = tag_in(tree)
        if type_id not in readers:
            return self._registered(type_id, version or 1, tree["v"])
        if version is not None:
            raise Flaw(f"the tag {type_id!r} has no version")
        return self.builtin(type_id, tree["v"])

    def builtin(self, type_id: str, payload: Any) -> Any:
        """The value of a builtin tag."""
        try:
            return readers[type_id](self, payload)
        except (Flaw, BranchpointError):
            raise
        except RecursionError:
            raise
        except (
            ValueError,
            TypeError,
            ArithmeticError,
            LookupError,
            AttributeError,
            NotImplementedError,
        ) as error:
            raise Flaw(f"the payload of {type_id!r} has another shape ({error})") from error

    def _registered(self, type_id: str, version: int, tree: Any) -> Any:
        entry = entry_for_id(type_id)
        if entry is None:
            raise Flaw(
                f"no class is registered as {type_id!r}; import the module that registers it before loading",
                UnregisteredTypeError,
            )
        if version > entry.version:
            raise Flaw(
                f"it holds {type_id!r} of version {version}, but this program knows versions up to "
                f"{entry.version}; run a newer program",
                UnknownVersionError,
            )
        inside = (
            1 if entry.kind == "custom" else 0
        )  # as in encoding, where a record is one level with its fields
        self.depth += inside
        payload = self.value(tree)
        self.depth -= inside
        made_by = ""
        if version < entry.version:
            payload, made_by = _upgraded(entry, version, payload)
        which = "" if made_by else f" version {version}"
        try:
            value = _called(f"the decoder of {type_id!r}", entry.decoder, payload, which)
        except FieldMismatch as mismatch:
            told = _mismatch(entry, version, mismatch)
            if made_by:
                told = f"{made_by}{type_name(entry.cls)} does not take that: {mismatch}"
            raise Flaw(told, UnknownVersionError) from None
        except Flaw as flaw:
            if not made_by:
                raise
            raise Flaw(made_by + flaw.reason, UnknownVersionError) from flaw.__cause__
        if type(value) is not entry.cls:
            raise Flaw(
                f"the decoder of {type_id!r} returned a {type_name(type(value))}, not a {type_name(entry.cls)}"
            )
        return value

    # Payloads of builtin tags.

    def list_tree(self, tree: Any) -> list[Any]:
        """The items of a list that may be cut, still as wire trees."""
        return joined_list(self.source, tree)

    def any_list(self, tree: Any) -> list[Any]:
        """The items of a list that may be cut or a part of its own, still as wire trees."""
        return any_list(self.source, tree)

    def pairs(self, tree: Any) -> list[tuple[Any, Any]]:
        """Keys and values of a mapping with any keys."""
        self.enter()
        found = []
        for place, item in enumerate(self.any_list(tree)):
            try:
                key, value = self.any_list(item)
            except ValueError:
                raise Flaw("a pair has not two items") from None
            try:
                live = self.value(key)
            except Flaw as flaw:
                flaw.steps.append(place)
                raise
            try:
                found.append((live, self.value(value)))
            except Flaw as flaw:
                flaw.steps.append(live)
                raise
        self.depth -= 1
        return found


def _called(what: str, function: Callable[[Any], Any], payload: Any, which: str = "") -> Any:
    """Call what a developer registered; its errors are told with its name, and the path is added above."""
    try:
        return function(payload)
    except (Flaw, FieldMismatch):
        raise
    except RecursionError as error:
        if not has_room():
            raise  # maybe the caller stands deep; it is called again on a fresh stack
        raise Flaw(f"{what} never ends (RecursionError)") from error
    except DataError as error:
        raise Flaw(str(error), type(error)) from error
    except Exception as error:
        raise Flaw(f"{what} refused{which} ({type(error).__name__}: {error})") from error


def _upgraded(entry: TypeEntry, version: int, payload: Any) -> tuple[Any, str]:
    """Carry a payload forward to the version that is known; also say which upgrade made it, if one did."""
    made_by = ""
    for step in range(version, entry.version):
        upgrade = entry.upgrades.get(step)
        if upgrade is not None:
            which = f"the upgrade of {entry.type_id!r} from version {step} to {step + 1}"
            try:
                payload = _called(which, upgrade, payload)
            except Flaw as flaw:  # the data is what it was, so nobody is told that it is damaged
                raise Flaw(flaw.reason, UnknownVersionError) from flaw.__cause__
            made_by = (
                f"{which} has to be mended: it returned a value of type {type_name(type(payload))}, and "
            )
    return payload, made_by


def _mismatch(entry: TypeEntry, version: int, mismatch: FieldMismatch) -> str:
    return (
        f"{entry.type_id!r} was saved by another version of {entry.cls.__module__}.{entry.cls.__qualname__}: "
        f"{mismatch} (saved as version {version}, known as version {entry.version}); raise version= and give "
        f"upgrades={{{version}: ...}}, or give the field a default"
    )
