"""What the other rooms call: values to bytes and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from branchpoint.codec import _builtin, _payloads
from branchpoint.codec._blob import plain_blob
from branchpoint.codec._comparison import Comparison
from branchpoint.codec._cut import FRAME, INLINE
from branchpoint.codec._decode import Reader
from branchpoint.codec._encode import Walk
from branchpoint.codec._flaw import Flaw, flaw_error
from branchpoint.codec._format import Format, Notation, notation
from branchpoint.codec._frame import Frame, Level, quick_root, root_of
from branchpoint.codec._memo import LONG, Memo
from branchpoint.codec._opening import encoded_of, entries_of, items_of
from branchpoint.codec._parts import Encoded, Part, digest, part_of
from branchpoint.codec._refusal import NoText, Refusal, TooDeep, depth_error, error_for, text_error
from branchpoint.codec._shape import MAX_DEPTH
from branchpoint.codec._source import Source, load, mentioned
from branchpoint.codec._stack import with_room
from branchpoint.codec._transcoding import transcoded
from branchpoint.codec._untied import plain_tree
from branchpoint.codec._wiretree import reachable_parts
from branchpoint.errors import CorruptCheckpointError

__all__ = [
    "comparison_digest", "decode", "decode_state", "encode", "encode_state", "open_dict", "open_list", "plain",
    "reachable", "references", "transcode",
]  # fmt: skip

_CONTAINERS: Final = frozenset({dict, list})
_Result = TypeVar("_Result")
# A value that was encoded once may stand some levels deeper in a state now, as a message that waits does.
_STATE_DEPTH: Final = MAX_DEPTH + 16
_LOADED = (_builtin, _payloads)  # importing them fills the tables of kinds


def encode(
    value: Any,
    *,
    format: Format,
    memo: Memo | None = None,
    depth: int = 3,
    path: str = "",
    owned: bool = False,
) -> tuple[Encoded, Memo | None]:
    """Encode one value; the result may stand for it inside any later value.

    The bytes depend on the value alone, never on `memo` or on how the value came about.

    Args:
        value: Any value of a builtin kind or a registered type; `Encoded` may stand inside it.
        format: "json" or "msgpack".
        memo: What an earlier encoding of this value returned; makes it quick to see what is unchanged.
        depth: How deep below the root of a state the value stands.
        path: Where it stands, for messages.
        owned: Nothing in the value is ever changed in place, by anybody; a later value may be made of
            the same objects. With a memo, the same object then counts as unchanged without a look at it.

    Returns:
        The encoding, and a memo for the next time where the value is large enough to be worth it.

    Raises:
        UnregisteredTypeError: A value in it is of an unregistered type; names type and path.
        UnsupportedValueError: A value in it cannot be kept (a cycle, over 256 levels, a lone
            surrogate, a class, an exception, ...); names type and path.
    """
    marks = notation(format)
    blob: bytes | None = None
    refs: tuple[Part, ...] = ()
    again: Memo | None = None
    if memo is None and depth > FRAME and type(value) in _CONTAINERS and len(value) < LONG:
        blob = plain_blob(marks, value)
    if blob is None:
        data, refs, again = _encoded(marks, value, memo, depth, path, owned)
    else:
        data = blob
    if len(data) > INLINE:
        part = part_of(data, refs)
        return Encoded(marks.reference(part.digest), (part,)), again
    return Encoded(data, refs), again


def comparison_digest(label: str, value: Any, *, path: str = "") -> str:
    """Return a digest that equal values share, whatever the order in which their dicts were filled.

    Types and values count exactly, as in encoding: `1`, `1.0` and `True` differ. So does the order of a
    list, of an `OrderedDict`, and of what the encoder of a registered type returns.

    Args:
        label: Sets digests of one value apart that are to mean different things.
        value: Any value that can be encoded.
        path: Where it stands, for messages.

    Raises:
        EncodingError: As in `encode`.
    """
    marks = notation("json")

    def work() -> tuple[bytes, tuple[Part, ...]]:
        walk = Comparison(marks, MAX_DEPTH + 1)  # the label stands one level above the value
        try:
            return walk.standalone(walk.child([label, value], 3, None))
        except Refusal as refusal:
            del refusal.steps[-1:]
            raise

    data, refs = _refusing(work, value, path)
    return digest(data if len(data) <= INLINE else marks.reference(part_of(data, refs).digest))


def encode_state(
    state: Mapping[str, Any], *, format: Format, memo: Level | None = None
) -> tuple[Part, Level | None]:
    """Encode a whole state, whose leaves may be `Encoded` already; see `encode`.

    Returns:
        The root part, under whose digest the state can be stored, and a memo for the next time: for a
        state made of the same objects, in which nothing was changed in place.
    """
    marks = notation(format)
    if type(state) is Frame:
        part = quick_root(marks, state)
        if part is not None:
            return part, None
        root: dict[str, Any] = state
    else:
        root = dict(state)
    return _refusing(lambda: root_of(Walk(marks, owned=True), root, memo), root, "")


def _encoded(
    marks: Notation, value: Any, memo: Memo | None, depth: int, path: str, owned: bool
) -> tuple[bytes, tuple[Part, ...], Memo | None]:
    def work() -> tuple[bytes, tuple[Part, ...], Memo | None]:
        walk = Walk(marks, owned=owned)
        tree = walk.child(value, depth, memo)
        data, refs = walk.standalone(tree)
        return data, refs, getattr(tree, "memo", None)

    return _refusing(work, value, path)


def _refusing(work: Callable[[], _Result], value: Any, path: str) -> _Result:
    """Encode, and turn what is refused into errors that name the place."""
    try:
        return with_room(work)
    except NoText as refusal:
        raise text_error(refusal, value, path) from None
    except Refusal as refusal:
        raise error_for(refusal, path) from refusal.__cause__
    except Flaw as flaw:  # in an encoding that was handed over
        raise flaw_error(flaw, path) from None
    except TooDeep:
        raise with_room(lambda: depth_error(value, path)) from None


def decode(data: bytes, parts: Mapping[str, bytes], *, format: Format, path: str = "") -> Any:
    """Decode a value, fresh each time.

    Args:
        data: The data of an `Encoded` or of a part.
        parts: Where the parts it mentions are found, by digest.
        format: The format of both.
        path: Where the value stands, for messages.

    Raises:
        CorruptCheckpointError: The bytes are damaged, not canonical, or not of this format.
        UnregisteredTypeError: They name a type that is not registered here.
        UnknownVersionError: They hold a type of a version or with fields that this program does not know.
    """
    return _guarded(path, lambda: Reader(Source(notation(format), data, parts)).read())


def decode_state(digest: str, parts: Mapping[str, bytes], *, format: Format) -> dict[str, Any]:
    """Decode the state with this root digest; see `decode`."""
    if digest not in parts:
        raise CorruptCheckpointError(f"the part {digest}, the root of a state, is missing")
    state = _guarded("", lambda: Reader(Source(notation(format), parts[digest], parts), _STATE_DEPTH).read())
    if type(state) is not dict:
        raise CorruptCheckpointError(f"the part {digest} is not the root of a state")
    return state


def open_dict(data: bytes, parts: Mapping[str, bytes], *, format: Format) -> dict[str, Encoded]:
    """Open one level of a stored dict with text keys; the values stay encoded and are not looked at."""
    marks = notation(format)

    def work() -> dict[str, Encoded]:
        entries = entries_of(Source(marks, data, parts), data)
        return {key: encoded_of(marks, item, parts) for key, item in entries.items()}

    return _guarded("", work)


def open_list(data: bytes, parts: Mapping[str, bytes], *, format: Format) -> list[Encoded]:
    """Open one level of a stored list; the items stay encoded and are not looked at."""
    marks = notation(format)

    def work() -> list[Encoded]:
        return [encoded_of(marks, item, parts) for item in items_of(Source(marks, data, parts), data)]

    return _guarded("", work)


def plain(data: bytes, parts: Mapping[str, bytes], *, format: Format) -> Any:
    """Show a value as JSON has it, without any registered type: tags stay, bytes are base64 text."""
    return _guarded("", lambda: plain_tree(Source(notation(format), data, parts), _STATE_DEPTH))


def references(data: bytes, *, format: Format) -> tuple[str, ...]:
    """The digests of the parts that some bytes mention directly, each once, in order."""
    marks = notation(format)
    if marks.marker not in data:
        return ()
    return _guarded("", lambda: tuple(dict.fromkeys(mentioned(load(marks, data)))))


def reachable(roots: Iterable[str], parts: Mapping[str, bytes], *, format: Format) -> set[str]:
    """The digests of the roots and of all parts under them.

    Raises:
        CorruptCheckpointError: A part is missing or cannot be read.
    """
    return _guarded("", lambda: reachable_parts(notation(format), roots, parts))


def transcode(root: str, parts: Mapping[str, bytes], *, source: Format, target: Format) -> tuple[Part]:
    """Carry the state with this root into another format; no type needs to be registered.

    Returns:
        The root part in the target format, alone in a tuple: the same as if the live state had been
        encoded in that format.
    """
    marks, other = notation(source), notation(target)

    def work() -> Part:
        return transcoded(Source(marks, marks.reference(root), parts), other, _STATE_DEPTH)

    return (_guarded("", work),)


def _guarded(path: str, work: Callable[[], _Result]) -> _Result:
    try:
        return with_room(work)
    except Flaw as flaw:
        raise flaw_error(flaw, path) from flaw.__cause__
    except RecursionError:
        raise CorruptCheckpointError(f"stored data at {path or 'the root'} nests without end") from None
