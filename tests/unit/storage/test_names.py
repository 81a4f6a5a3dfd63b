"""File names: no two ids meet, and none leaves its folder."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from branchpoint import ids
from branchpoint.errors import InvalidCallError
from branchpoint.storage._lock import STRIPES
from branchpoint.storage._names import file_name, stripe, stripe_of_temporary, temporary_name

HOSTILE = [
    "../../x", "/etc/x", "a/b", "..", ".", "C:\\x", "*", "[ab]", "?", "x' OR '1'='1", "%", "_", "~", "-rf",
    " ", "a ", "a.", ".hidden", "con", "CON", "nul.txt", "Com1", "lpt9", "a:b", "a|b", "<a>", '"',
    "é", "e\u0301", "É", "ß", "SS", "ss", "ı", "I", "i", "İ", "\u212a",
    "k", "K", "a", "A", "ab", "aB", "Ab", "AB", "a~u", "A~u",
    "😀", "\u2028", "\u200b", "ﬁ", "fi", ".lock-00", ".tmp-00-ab", "x.journal", "x", "x.lease",
]  # fmt: skip


def folded(name: str) -> str:
    """The name as the most forgetful file system would see it."""
    return unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", name).casefold()).rstrip(". ")


def test_hostile_ids_have_names_that_differ_on_every_file_system() -> None:
    names = {checkpoint_id: folded(file_name(checkpoint_id)) for checkpoint_id in HOSTILE}
    assert len(set(names.values())) == len(HOSTILE)


@pytest.mark.parametrize("checkpoint_id", [*HOSTILE, "a" * 512, "é" * 512, "😀" * 512])
def test_a_name_is_harmless(checkpoint_id: str) -> None:
    name = file_name(checkpoint_id)
    assert re.fullmatch(r"[a-z0-9_~][a-z0-9_~.-]*\.journal", name)
    assert len(name) <= 200
    assert stripe_of_temporary(name) is None


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20), min_size=2))
def test_different_ids_have_different_names(some: list[str]) -> None:
    assert len({folded(file_name(one)) for one in some}) == len(set(some))


def test_ids_of_this_library_and_plain_ids_stay_readable() -> None:
    assert file_name("order-17") == "order-17.journal"
    assert file_name("tenant.a_1") == "tenant.a_1.journal"
    fresh = ids.new_id()
    assert file_name(fresh) == fresh.lower() + "~u.journal"
    assert file_name(fresh.lower()) == fresh.lower() + ".journal"
    assert file_name("Bestellung Nr. 4").startswith("bestellung-nr-4~")


@pytest.mark.parametrize("checkpoint_id", ["", "a\x00b", "a\nb", "\x7f", "\x9b31m", "a" * 513, "a\ud83d"])
def test_c59_an_id_that_no_storage_keeps_is_refused_without_an_echo(checkpoint_id: str) -> None:
    with pytest.raises(InvalidCallError) as caught:
        file_name(checkpoint_id)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def test_a_stripe_is_the_same_everywhere_and_all_are_used() -> None:
    assert stripe("order-17", STRIPES) == stripe("order-17", STRIPES) == 49
    assert {stripe(f"order-{n}", STRIPES) for n in range(2000)} == set(range(STRIPES))


def test_an_unfinished_file_says_whose_lock_its_writer_holds() -> None:
    assert stripe_of_temporary(temporary_name(63, "00ff")) == 63
    for other in (".tmp-zz-00", ".tmp-3f", "tmp-3f-00", ".lock-3f", ".tmp-3f-00.journal", "3f.journal"):
        assert stripe_of_temporary(other) is None
