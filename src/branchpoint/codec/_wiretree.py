"""Stored bytes as wire trees: cut lists and dicts put together again, and which parts there are.

Nothing here knows a live type. Bytes are taken only if they are canonical: if msgspec would write
the tree it read with the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from branchpoint.codec._flaw import Flaw
from branchpoint.codec._format import Notation
from branchpoint.codec._source import Source, leaves_of, load, mentioned, reference_in

__all__ = [
    "INT_MAX", "INT_MIN", "any_list", "joined_dict", "joined_list", "number", "reachable_parts", "tag_in",
]  # fmt: skip

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**64 - 1


def _leaves(source: Source, tree: Any, mapping: bool) -> Iterable[Any]:
    name, kind = ("$d", dict) if mapping else ("$l", list)

    def opened(node: Any) -> tuple[bool, Any]:
        digest = reference_in(node)
        if digest is not None:
            node = source.tree(digest)
        if type(node) is dict and name in node:
            below = node[name]
            if len(node) != 1 or type(below) is not list or not below:
                raise Flaw("a node of a cut value has another shape")
            return True, below
        if type(node) is not kind:
            raise Flaw("a node of a cut value is of another kind")
        return False, node

    return leaves_of(tree, opened)


def joined_list(source: Source, tree: Any) -> list[Any]:
    """The items of a list that may be cut, still as wire trees."""
    if type(tree) is list:
        return tree
    if type(tree) is dict and "$l" in tree:
        return [item for leaf in _leaves(source, tree, False) for item in leaf]
    raise Flaw("a list is expected here")


def any_list(source: Source, tree: Any) -> list[Any]:
    """The items of a list that may be cut or a part of its own, still as wire trees."""
    digest = reference_in(tree)
    return joined_list(source, tree if digest is None else source.tree(digest))


def joined_dict(source: Source, tree: dict[str, Any]) -> dict[str, Any]:
    """The entries of a cut dict, still as wire trees."""
    joined: dict[str, Any] = {}
    count = 0
    for leaf in _leaves(source, tree, True):
        joined.update(leaf)
        count += len(leaf)
    if len(joined) != count:
        raise Flaw("a key comes twice in a cut dict")
    return joined


def tag_in(tree: dict[str, Any]) -> tuple[str, int | None]:
    """Type id and stated version of a tag."""
    type_id = tree.get("$")
    if type(type_id) is not str:
        raise Flaw("a key begins with '$' and is no tag")
    keys = tuple(tree)
    if keys == ("$", "v"):
        return type_id, None
    if keys != ("$", "n", "v"):
        raise Flaw(f"the tag {type_id!r} has other keys than '$', 'n' and 'v'")
    version = tree["n"]
    if type(version) is not int or version < 2:
        raise Flaw(f"{version!r} is no version of {type_id!r}")
    return type_id, version


def number(value: Any, kind: type[Any]) -> Any:
    """A number that needs no tag."""
    if kind is int:
        if INT_MIN <= value <= INT_MAX:
            return value
    elif kind is float and value - value == 0.0:
        return value
    raise Flaw(f"a {kind.__name__} like this is not written without a tag")


def reachable_parts(notation: Notation, roots: Iterable[str], parts: Mapping[str, bytes]) -> set[str]:
    """The digests of the roots and of everything under them."""
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        digest = waiting.pop()
        if digest in found:
            continue
        data = parts.get(digest)
        if data is None:
            raise Flaw(f"the part {digest} is missing")
        found.add(digest)
        if notation.marker in data:
            waiting.extend(notation.references_in(data) or mentioned(load(notation, data)))
    return found
