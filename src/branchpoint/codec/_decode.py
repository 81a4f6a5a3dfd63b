"""Decoding: stored bytes to fresh live values.

Only plain and registered values are built. Every shape is checked; what encoding would not write is
a flaw, reported with its path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from branchpoint.codec._defaults import FieldMismatch
from branchpoint.codec._encode import INT_MAX, INT_MIN
from branchpoint.codec._flaw import Flaw
from branchpoint.codec._format import Notation
from branchpoint.codec._registry import TypeEntry, entry_for_id
from branchpoint.codec._wiretree import load, nodes_of, reference_in, resolve
from branchpoint.errors import BranchpointError, DataError, UnknownVersionError, UnregisteredTypeError

__all__ = ["Reader", "readers"]

readers: dict[str, Callable[[Reader, Any], Any]] = {}
"""Builtin tag -> how its payload becomes a value."""

_NONE: Final = type(None)


class Reader:
    """One decoding; `parts` is where the parts of the value are."""

    __slots__ = ("notation", "parts")

    def __init__(self, notation: Notation, parts: Mapping[str, bytes]) -> None:
        self.notation = notation
        self.parts = parts

    def read(self, data: bytes) -> Any:
        """The value of some bytes."""
        return self.value(load(self.notation, data))

    def value(self, tree: Any) -> Any:
        """The value of a wire tree; plain containers of the tree are reused."""
        kind = type(tree)
        if kind is list:
            return self.items(tree)
        if kind is dict:
            return self.dict_(tree)
        if kind is str or kind is bool or kind is _NONE:
            return tree
        return _number(tree, kind)

    def items(self, tree: list[Any]) -> list[Any]:
        """The items of a list, in place."""
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
                    _number(item, kind)
        except Flaw as flaw:
            flaw.steps.append(place)
            raise
        return tree

    def dict_(self, tree: dict[str, Any]) -> Any:
        """The value of a dict of the wire: a dict, a reference, a cut value or a tag."""
        for key in tree:
            if key[:1] == "$" if type(key) is str else True:
                return self._special(tree)
            break
        return self._entries(tree)

    def _entries(self, tree: dict[str, Any]) -> dict[str, Any]:
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
                    _number(item, kind)
        except Flaw as flaw:
            flaw.steps.append(key)
            raise
        return tree

    def _special(self, tree: dict[str, Any]) -> Any:
        digest = reference_in(tree)
        if digest is not None:
            return self.value(resolve(self.notation, digest, self.parts))
        if "$l" in tree:
            return self.items(self.list_tree(tree))
        if "$d" in tree:
            return self._entries(self._joined(tree))
        type_id = tree.get("$")
        if type(type_id) is not str:
            raise Flaw("a key begins with '$' and is no tag")
        keys = tuple(tree)
        if keys == ("$", "v"):
            reader = readers.get(type_id)
            if reader is not None:
                return self._builtin(type_id, reader, tree["v"])
        elif keys != ("$", "n", "v") or type_id in readers:
            raise Flaw(f"the tag {type_id!r} has other keys than '$', 'n' and 'v'")
        return self._registered(type_id, tree)

    def _builtin(self, type_id: str, reader: Callable[[Reader, Any], Any], payload: Any) -> Any:
        try:
            return reader(self, payload)
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

    def _registered(self, type_id: str, tree: dict[str, Any]) -> Any:
        entry = entry_for_id(type_id)
        if entry is None:
            raise Flaw(
                f"no class is registered as {type_id!r}; import the module that registers it before loading",
                UnregisteredTypeError,
            )
        version = tree.get("n", 1)
        if type(version) is not int or version < 1 or ("n" in tree and version == 1):
            raise Flaw(f"{version!r} is no version of {type_id!r}")
        if version > entry.version:
            raise Flaw(
                f"it holds {type_id!r} of version {version}, but this program knows versions up to "
                f"{entry.version}; run a newer program",
                UnknownVersionError,
            )
        payload = self.value(tree["v"])
        try:
            for step in range(version, entry.version):
                upgrade = entry.upgrades.get(step)
                if upgrade is not None:
                    payload = upgrade(payload)
            return entry.decoder(payload)
        except (Flaw, RecursionError):
            raise
        except FieldMismatch as mismatch:
            raise Flaw(_mismatch(entry, version, mismatch), UnknownVersionError) from None
        except DataError as error:
            raise Flaw(str(error), type(error)) from error
        except Exception as error:
            raise Flaw(
                f"the decoder of {type_id!r} refused version {version} ({type(error).__name__}: {error})"
            ) from error

    # Payloads of builtin tags.

    def list_tree(self, tree: Any) -> list[Any]:
        """The items of a list that may be cut, still as wire trees."""
        if type(tree) is list:
            return tree
        if type(tree) is dict and "$l" in tree:
            return [item for leaf in nodes_of(self.notation, tree, False, self.parts) for item in leaf]
        raise Flaw("a list is expected here")

    def _joined(self, tree: Any) -> dict[str, Any]:
        joined: dict[str, Any] = {}
        count = 0
        for leaf in nodes_of(self.notation, tree, True, self.parts):
            joined.update(leaf)
            count += len(leaf)
        if len(joined) != count:
            raise Flaw("a key comes twice in a cut dict")
        return joined

    def any_list(self, tree: Any) -> list[Any]:
        """The items of a list that may be cut or a part of its own, still as wire trees."""
        digest = reference_in(tree)
        return self.list_tree(tree if digest is None else resolve(self.notation, digest, self.parts))

    def pairs(self, tree: Any) -> list[tuple[Any, Any]]:
        """Keys and values of a mapping with any keys."""
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
        return found


def _number(value: Any, kind: type[Any]) -> Any:
    if kind is int:
        if INT_MIN <= value <= INT_MAX:
            return value
    elif kind is float and value - value == 0.0:
        return value
    raise Flaw(f"a {kind.__name__} like this is not written without a tag")


def _mismatch(entry: TypeEntry, version: int, mismatch: FieldMismatch) -> str:
    return (
        f"{entry.type_id!r} was saved by another version of {entry.cls.__module__}.{entry.cls.__qualname__}: "
        f"{mismatch} (saved as version {version}, known as version {entry.version}); raise version= and give "
        f"upgrades={{{version}: ...}}, or give the field a default"
    )
