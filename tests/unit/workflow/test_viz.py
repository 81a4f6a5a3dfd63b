"""Drawings as files, with and without Graphviz."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from branchpoint.errors import InvalidCallError
from branchpoint.graph import Executor, WorkflowContext, handler, to_digraph, to_mermaid
from branchpoint.workflow import WorkflowBuilder, WorkflowViz


class Text(Executor):
    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None: ...


def viz() -> WorkflowViz:
    workflow: Any = SimpleNamespace(graph=_graph())
    return WorkflowViz(workflow)


def _graph() -> Any:
    a, b = Text(id="a"), Text(id="b")
    return WorkflowBuilder(name="n", start_executor=a).add_edge(a, b).build_graph()


def test_texts_are_those_of_the_graph() -> None:
    assert viz().to_mermaid() == to_mermaid(_graph())
    assert viz().to_digraph() == to_digraph(_graph())


def test_dot_needs_no_graphviz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "graphviz", None)
    for name in ("drawing", "other.dot"):
        path = viz().export("dot", str(tmp_path / name))
        assert path == str((tmp_path / name).with_suffix(".dot"))
        assert Path(path).read_text() == to_digraph(_graph())


def test_without_a_filename_a_new_file_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first, second = viz().export("dot"), viz().export("dot")
    assert first != second
    assert {Path(first), Path(second)} == set(tmp_path.iterdir())
    assert Path(first).read_text() == to_digraph(_graph())


def test_wrong_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidCallError, match="no drawing format 'gif'; use one of svg, png, pdf, dot"):
        viz().export("gif")  # type: ignore[arg-type]
    with pytest.raises(InvalidCallError, match=r"ends in '.png', but the format is 'svg': name it '.*a.svg'"):
        viz().save_svg(str(tmp_path / "a.png"))
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "graphviz", None)
    with pytest.raises(ImportError, match=r"pip install 'branchpoint\[viz\]'"):
        viz().save_png(str(tmp_path / "a.png"))
    assert list(tmp_path.iterdir()) == []


def test_a_missing_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("graphviz")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImportError, match="not the program 'dot' that it calls"):
        viz().save_svg(str(tmp_path / "a.svg"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(shutil.which("dot") is None, reason="the program dot is not installed")
def test_pictures_are_written(tmp_path: Path) -> None:
    starts = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}
    for save, kind in ((viz().save_svg, "svg"), (viz().save_png, "png"), (viz().save_pdf, "pdf")):
        path = save(str(tmp_path / f"drawing.{kind}"))
        assert path == str(tmp_path / f"drawing.{kind}")
        assert Path(path).read_bytes().startswith(starts[kind])


def test_the_digraph_is_what_the_program_gets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the program `dot` that gives back what it was fed."""
    pytest.importorskip("graphviz")
    program = tmp_path / "bin" / "dot"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec /bin/cat\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    path = viz().save_pdf(str(tmp_path / "drawing"))
    assert path == str(tmp_path / "drawing.pdf")
    assert Path(path).read_text().strip() == to_digraph(_graph())
