"""What is committed works on any machine and names no address to download from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.source_files import ROOT, tracked_files

FILES = [path for path in tracked_files() if "golden" not in path.parts]

# Absolute paths of one person's machine; `/tmp` may be named, `/usr/bin/env` is in every shebang.
_MACHINE_PATH = re.compile(r"(?<![\w.:/~-])/(?:work|home|root|Users|opt|mnt)/[\w.-]+")
_REGISTRY = re.compile(
    "|".join(
        re.escape(part)
        for part in ("files.python" + "hosted.org", "pypi." + "org/simple", "registry.npm" + "js.org")
    )
)
_LOCK_FILES = {
    "poetry.lock",
    "uv.lock",
    "pdm.lock",
    "Pipfile.lock",
    "package-lock.json",
    "yarn.lock",
    "pylock.toml",
}
_INDEX_OPTIONS = re.compile(r"--(?:extra-)?index-url|--find-links|--trusted-host")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def test_no_path_of_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in FILES
        for number, line in enumerate(_text(path).splitlines(), 1)
        for match in _MACHINE_PATH.finditer(line)
    ]
    assert not found, "\n".join(found)


def test_no_registry_is_named() -> None:
    found = [
        str(path.relative_to(ROOT))
        for path in FILES
        if _REGISTRY.search(_text(path))
        or (path.name != Path(__file__).name and _INDEX_OPTIONS.search(_text(path)))
    ]
    assert not found


def test_no_lock_file_with_addresses() -> None:
    assert not [path for path in FILES if path.name in _LOCK_FILES]


def test_constraints_are_plain_pins() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    wrong = [line for line in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!_-]+", line)]
    assert pins
    assert not wrong
    assert pins == sorted(pins, key=str.lower), "keep them sorted"
    assert not [line for line in pins if line.lower().startswith("branchpoint")]


@pytest.mark.parametrize(
    "path", [p for p in FILES if p.suffix == ".md"], ids=lambda p: str(p.relative_to(ROOT))
)
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", _text(path), flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"`[^`\n]*`", "", prose)
    targets = re.findall(r"\]\(([^)\s]+)\)", prose)
    local = [target.partition("#")[0] for target in targets if not re.match(r"[a-z]+:", target)]
    missing = [target for target in local if target and not (path.parent / target).exists()]
    assert not missing


def test_every_page_is_in_the_index_of_the_docs() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / target).resolve() for target in re.findall(r"\]\(([^)\s#]+)", _text(index))}
    pages = {path for path in FILES if path.suffix == ".md" and index.parent in path.parents}
    assert pages - {index} <= linked, "add it to docs/README.md"
