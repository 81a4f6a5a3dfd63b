"""The page that maps each requirement to its tests is current, and its tool does what it says."""

from __future__ import annotations

from tests.architecture.requirements_map import (
    NONE_YET,
    PAGE,
    by_requirement,
    cell,
    listed_requirements,
    rendered,
)


def test_the_page_is_current() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == rendered(page, by_requirement()), "run `make requirements` and commit the page"


def test_every_number_in_a_test_is_a_requirement() -> None:
    listed = listed_requirements(PAGE.read_text(encoding="utf-8"))
    assert len(listed) == len(set(listed))
    assert by_requirement().keys() <= set(listed)


def test_a_row_keeps_its_sentence_and_gets_its_tests() -> None:
    page = "# Title\n\n| R01 | One thing. | stale |\n| R02 | Another. | |\n"
    tests = {"R01": {"tests/unit/test_a.py": ["test_r01_b", "test_r01_a"]}}
    assert rendered(page, tests) == (
        "# Title\n\n"
        "| R01 | One thing. | [unit/test_a.py](../../tests/unit/test_a.py): `test_r01_a`, `test_r01_b` |\n"
        f"| R02 | Another. | {NONE_YET} |\n"
    )
    assert rendered(rendered(page, tests), tests) == rendered(page, tests)


def test_no_tests_is_said_in_words() -> None:
    assert cell({}) == NONE_YET
