"""Drawings of a workflow, as text and as files."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, get_args

from branchpoint.errors import InvalidCallError
from branchpoint.graph import to_digraph, to_mermaid

if TYPE_CHECKING:
    from branchpoint.workflow._workflow import Workflow

__all__ = ["WorkflowViz"]

_Format = Literal["svg", "png", "pdf", "dot"]


class WorkflowViz:
    """Draws a workflow. The texts need nothing; pictures need the `graphviz` package and program.

    Args:
        workflow: What to draw; it is only read.

    Example:
        ```python
        print(WorkflowViz(workflow).to_mermaid())
        ```
    """

    def __init__(self, workflow: Workflow) -> None:
        self._graph = workflow.graph

    def to_mermaid(self) -> str:
        """Return a Mermaid flowchart, as a README or an issue shows it."""
        return to_mermaid(self._graph)

    def to_digraph(self) -> str:
        """Return a digraph in the DOT language of Graphviz."""
        return to_digraph(self._graph)

    def export(self, format: _Format = "svg", filename: str | None = None) -> str:
        """Write a drawing to a file.

        Args:
            format: `svg`, `png` or `pdf`, or `dot` for the text itself, which needs no Graphviz.
            filename: Where to write; the extension may be left out. By default a new file among the
                temporary files, which is the caller's to delete.

        Returns:
            The path of the file.

        Raises:
            InvalidCallError: There is no such format, or the file's extension is another one.
            ImportError: The `graphviz` package, or the Graphviz program, is not installed.
        """
        if format not in get_args(_Format):
            known = ", ".join(get_args(_Format))
            raise InvalidCallError(f"There is no drawing format {format!r}; use one of {known}.")
        if filename is not None and Path(filename).suffix not in ("", f".{format}"):
            raise InvalidCallError(
                f"The file '{filename}' ends in '{Path(filename).suffix}', but the format is '{format}': "
                f"name it '{Path(filename).with_suffix('.' + format)}', or leave its extension out."
            )
        content = self.to_digraph().encode() if format == "dot" else _rendered(self.to_digraph(), format)
        if filename is None:
            with tempfile.NamedTemporaryFile(suffix=f".{format}", delete=False) as file:
                file.write(content)
                return file.name
        path = Path(filename).with_suffix(f".{format}")
        path.write_bytes(content)
        return str(path)

    def save_svg(self, filename: str) -> str:
        """Write an SVG file and return its path; see `export`."""
        return self.export("svg", filename)

    def save_png(self, filename: str) -> str:
        """Write a PNG file and return its path; see `export`."""
        return self.export("png", filename)

    def save_pdf(self, filename: str) -> str:
        """Write a PDF file and return its path; see `export`."""
        return self.export("pdf", filename)


def _rendered(dot: str, format: str) -> bytes:
    try:
        import graphviz
    except ImportError as missing:
        raise ImportError(
            "Pictures of a workflow need the package 'graphviz': pip install 'branchpoint[viz]'. "
            "to_mermaid(), to_digraph() and export('dot') work without it."
        ) from missing
    try:
        return cast(bytes, graphviz.Source(dot).pipe(format=format))
    except graphviz.ExecutableNotFound as missing:
        raise ImportError(
            "The package 'graphviz' is installed, but not the program 'dot' that it calls: install Graphviz "
            "with the system's package manager (graphviz.org/download). "
            "to_mermaid(), to_digraph() and export('dot') work without it."
        ) from missing
