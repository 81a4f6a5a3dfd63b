"""Checkpoint ids that are chosen by somebody who means harm: each is one checkpoint of its own, or refused."""

from __future__ import annotations

import os
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from branchpoint.checkpoint import CheckpointStorage
from branchpoint.errors import CheckpointNotFoundError, InvalidCallError
from branchpoint.storage import FileCheckpointStorage
from branchpoint.storage._names import file_name
from tests.hostile.forge import check_told, refused
from tests.journals import journal_of
from tests.scenario.kit import file_bytes
from tests.scenario.test_storage_cases import tree
from tests.storages import SCENARIOS, create, grown, opener, shared, state

TRAVERSAL = [
    "../../x", "/etc/x", "a/b", "..", ".", "...", "C:\\x", "..\\..\\x", "\\\\host\\share", "file:///etc/x", "~",
    "~root", "$HOME", "%2e%2e%2fx", "..%c0%afx", "a/../../b", "//x", "/", "\\", "-", "--help", "-rf", "|id", "`id`",
    "$(id)", ";id", "&",
]  # fmt: skip
PATTERNS = [
    "*", "**", "?", "[ab]", "[!a]", "{a,b}", "ordinary-*", "ordinary-?", "%", "_", "x' OR '1'='1", "'; --", "%s",
    "{0}", "{checkpoint_id}",
]  # fmt: skip
UNSEEN = [
    "\u202egnp.exe", "a\u200bb", "ab", "a\u200db", "a\u2060b", "\ufeffa", "a\u00adb", "\u2066a\u2069", "\u2028",
    "\u2029", "\u00a0", "\u3000", "a\ufe0f", "\U000e0041", "\ufffd", "\ufffe", "\U0010ffff", "\ue000",
]  # fmt: skip
ALIKE = [
    "a", "A", "aa", "aA", "Aa", "AA", "é", "e\u0301", "É", "E\u0301", "ﬁ", "fi", "ß", "ss", "SS", "ẞ", "ı", "i",
    "I", "İ", "i\u0307", "K", "\u212a", "k", "ſ", "s", "Å", "\u212b", "A\u030a", "１", "1", "\u0430", "а\u0301",
    "Ω", "\u2126",
]  # fmt: skip
RESERVED = [
    "con", "CON", "Con", "con.txt", "con.", "con ", "prn", "aux", "AUX.x.y", "nul", "NUL.journal", "com1", "COM9.a",
    "com0", "lpt1", "lpt9", "com¹", "conin$", "clock$", "a.", "a..", "a ", " a", "  ", "a. .", ".a", "..a", "a.b.",
    "a:b", "a:$DATA", "<a>", '"', "a|b", "a\u2024b",
]  # fmt: skip
OURS = [
    ".lock-00", ".lock-31", ".tmp-00-ab", ".tmp-31-0", "x.journal", "x", ".journal", "journal", "x~u", "X", "x~",
    "~u", "x~aaaaaaaaaaaaaaaaaaaaaaaaaa", ".lock-00.journal", "x.lease", "x.journal.journal", "x.tmp",
]  # fmt: skip
LONG = [
    "a" * 512,
    "A" * 512,
    "😀" * 512,
    "é" * 512,
    "e\u0301" * 256,
    "a" * 120,
    "a" * 121,
    "a" * 511,
    "a" * 512 + "",
]
LEGAL = list(dict.fromkeys([*TRAVERSAL, *PATTERNS, *UNSEEN, *ALIKE, *RESERVED, *OURS, *LONG]))

CONTROL = [chr(n) for n in range(32)] + ["\x7f", "\x80", "\x85", "\x9b", "\x9f"]
REFUSED: list[Any] = [
    "", "a" * 513, "😀" * 513, "a" * 5000, "x" * 10**6, "\ud83d", "a\udc00", "\ud83d\ude00", "\udcff", "\x1b[2J\x1b[H",
    "\x1b]0;title\x07", "a\r\nb: c", *(f"a{one}b" for one in CONTROL), *CONTROL,
]  # fmt: skip
NO_TEXT: list[Any] = [
    None,
    5,
    5.5,
    True,
    b"order-17",
    ["order-17"],
    {},
    object(),
    type("Text", (str,), {})("order-17"),
]


@pytest.fixture
def fenced(tmp_path: Path) -> Iterator[Path]:
    """A folder for a storage, deep inside one that must stay as it is."""
    runs = tmp_path / "a" / "b" / "runs"
    runs.mkdir(parents=True)
    for outside in ("x", "a/x", "a/b/x", "a/b/x.journal", "a/b/y.journal", "a/b/.lock-00"):
        (tmp_path / outside).write_text("theirs")

    def others() -> dict[str, Any]:
        return {name: data for name, data in tree(tmp_path).items() if not name.startswith("a/b/runs/")}

    before, inside = others(), os.getcwd()
    os.chdir(tmp_path / "a" / "b")  # where a relative name would be looked for
    try:
        yield runs
    finally:
        os.chdir(inside)
    assert others() == before


@pytest.fixture(params=SCENARIOS)
def backend(request: pytest.FixtureRequest, fenced: Path) -> CheckpointStorage:
    return opener(request.param, fenced.parent)()


async def test_c58_c59_every_id_that_is_taken_is_one_checkpoint_of_its_own(
    backend: CheckpointStorage, fenced: Path
) -> None:
    for name in LEGAL:
        with pytest.raises(CheckpointNotFoundError) as caught:
            await backend.load(name)
        check_told(caught.value)
        await backend.delete(name)
        await create(backend, name).commit_snapshot(state(0, name=name))
    listed = [line.checkpoint_id for line in await backend.list_checkpoints()]
    assert listed == sorted(LEGAL)
    for n, name in enumerate(LEGAL):
        checkpoint = await backend.load(name)
        assert checkpoint.checkpoint_id == name
        assert shared(checkpoint.head_snapshot) == {"name": name}
        assert repr(checkpoint.head_snapshot).isprintable()
        await backend.delete(name)
        if n % 40 == 0:
            left = [line.checkpoint_id for line in await backend.list_checkpoints()]
            assert left == sorted(LEGAL[n + 1 :])
    assert not [name for name in file_bytes(fenced) if "/.lock-" not in name]


async def test_c58_c59_an_id_that_is_refused_is_refused_before_anything_happens(
    backend: CheckpointStorage, fenced: Path
) -> None:
    async def everywhere(name: Any) -> None:
        calls: list[Callable[[], Any]] = [
            lambda: backend.load(name),
            lambda: backend.delete(name),
            lambda: backend.load_head(name),
            lambda: backend.load_parts(name, ["A" * 22]),
        ]
        if name is not None:  # which asks for a fresh one
            calls.append(lambda: create(backend, name))
        for call in calls:
            assert len(str(await refused(call, InvalidCallError))) < 500

    for name in [*REFUSED, *NO_TEXT]:
        await everywhere(name)
    assert tree(fenced) == {}


async def test_c59_an_id_that_is_refused_is_refused_for_a_fork_too(fenced: Path) -> None:
    storage = FileCheckpointStorage(fenced)
    checkpoint = await grown(storage)
    before = tree(fenced)
    for name in REFUSED:
        await refused(
            lambda: checkpoint.fork(checkpoint_id=name, checkpoint_storage=storage),  # noqa: B023
            InvalidCallError,
        )
    assert tree(fenced) == before


async def test_c59_deleting_one_id_leaves_what_its_text_would_match(fenced: Path) -> None:
    storage = FileCheckpointStorage(fenced)
    ordinary = [f"ordinary-{n}" for n in range(5)]
    for name in ordinary:
        await grown(storage, name)
    before = {name: data for name, data in tree(fenced).items() if name.endswith(".journal")}
    for name in [*PATTERNS, *TRAVERSAL[::3], *OURS[::3]]:
        await storage.delete(name)
        await grown(storage, name, commits=1)
        await storage.delete(name)
        assert {one: data for one, data in tree(fenced).items() if one.endswith(".journal")} == before
    assert all(one.startswith(".lock-") for one in set(tree(fenced)) - set(before))


@given(st.text(min_size=1, max_size=600))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_c58_c59_any_text_has_a_harmless_name_or_is_refused(name: str) -> None:
    bad = len(name) > 512 or any(unicodedata.category(one) in ("Cc", "Cs") for one in name)
    try:
        found = file_name(name)
    except InvalidCallError as error:
        check_told(error)
        assert bad
        return
    assert not bad
    assert os.path.basename(found) == found
    assert len(os.fsencode(found)) <= 200
    assert found.isascii() and found.isprintable() and found == found.lower()
    assert not found.startswith((".", "-"))


async def test_c59_a_name_in_the_folder_that_is_none_of_ours_is_told_without_its_control_characters(
    fenced: Path,
) -> None:
    storage = FileCheckpointStorage(fenced)
    await grown(storage)
    whole = journal_of(fenced).read_bytes()
    names = [
        b"\x1b[2J\x1b[H.journal",
        b"a\nb.journal",
        b"\xff\xfe.journal",
        "\u202ex.journal".encode(),
        b" .journal",
    ]
    for name in names:
        with open(os.path.join(os.fsencode(fenced), name), "wb") as file:
            file.write(whole)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert [line.checkpoint_id for line in await storage.list_checkpoints()] == ["order-17"]
    assert len(told) == len(names)
    for warning in told:
        assert str(warning.message).isprintable()
        assert "order-17" in str(warning.message)
