"""Drawings of a graph as text: Mermaid flowcharts and DOT digraphs.

Both show the same picture: one box per executor, a node for every fan-in, conditional ways dashed
and labelled, the start and the outputs marked, child workflows as boxes of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from branchpoint.graph._signature import child_graph

if TYPE_CHECKING:
    from branchpoint.graph._edges import EdgeGroup
    from branchpoint.graph._graph import Graph

__all__ = ["to_digraph", "to_mermaid"]

_Path = tuple[str, ...]

# Words that end or open something in Mermaid's grammar and cannot name a node.
_MERMAID_WORDS = {"class", "classdef", "click", "default", "direction", "end", "flowchart"} | {
    "graph", "href", "linkstyle", "style", "subgraph",
}  # fmt: skip


class _Node(msgspec.Struct, frozen=True):
    path: _Path
    label: str
    is_start: bool = False
    is_join: bool = False


class _Way(msgspec.Struct, frozen=True):
    source: _Path
    target: _Path
    label: str | None = None  # not None: conditional


def to_mermaid(graph: Graph) -> str:
    """Return the graph as a Mermaid flowchart; the same text for the same graph in every process."""
    names = _mermaid_names(graph)
    lines = ["flowchart TD"]

    def emit(part: Graph, path: _Path, indent: str) -> None:
        for node in _nodes(part, path):
            text = _mermaid_text(node.label)
            shape = f"(({text}))" if node.is_join else f"[{text}]"
            lines.append(f"{indent}{names[node.path]}{shape};")
        for way in _ways(part, path):
            arrow = "-->" if way.label is None else f"-.->|{_mermaid_text(way.label)}|"
            lines.append(f"{indent}{names[way.source]} {arrow} {names[way.target]};")
        for child_id, child in _children(part):
            title = _mermaid_text(f"sub-workflow: {child_id}")
            lines.append(f"{indent}subgraph {names[_box(path, child_id)]}[{title}]")
            emit(child, (*path, child_id), indent + "  ")
            lines.append(f"{indent}end")

    emit(graph, (), "  ")
    return "\n".join(lines)


def to_digraph(graph: Graph) -> str:
    """Return the graph as a DOT digraph; the same text for the same graph in every process."""
    lines = [
        "digraph Workflow {",
        "  rankdir=TD;",
        "  node [shape=box, style=filled, fillcolor=lightblue];",
        "  edge [color=black, arrowhead=vee];",
    ]

    def emit(part: Graph, path: _Path, indent: str) -> None:
        for node in _nodes(part, path):
            looks = f"label={_dot_text(node.label)}"
            if node.is_join:
                looks = f"shape=ellipse, fillcolor=lightgoldenrod, {looks}"
            elif node.is_start:
                looks = f"fillcolor=lightgreen, {looks}"
            lines.append(f"{indent}{_dot_name(node.path)} [{looks}];")
        for way in _ways(part, path):
            looks = "" if way.label is None else f" [style=dashed, label={_dot_text(way.label)}]"
            lines.append(f"{indent}{_dot_name(way.source)} -> {_dot_name(way.target)}{looks};")
        for child_id, child in _children(part):
            lines.append(f"{indent}subgraph {_dot_text('cluster_' + _joined((*path, child_id)))} {{")
            lines.append(f"{indent}  label={_dot_text(f'sub-workflow: {child_id}')};")
            lines.append(f"{indent}  style=dashed;")
            emit(child, (*path, child_id), indent + "  ")
            lines.append(f"{indent}}}")

    emit(graph, (), "  ")
    lines.append("}")
    return "\n".join(lines)


def _nodes(graph: Graph, path: _Path) -> Iterator[_Node]:
    for executor_id, executor in graph.executors.items():
        marks = ["Start"] if executor_id == graph.start_id else []
        kind = graph.classify_output(executor_id) if executor.workflow_output_types else None
        if kind is not None:
            marks.append(kind.capitalize())
        label = executor_id + (f"\n({', '.join(marks)})" if marks else "")
        yield _Node((*path, executor_id), label, is_start=executor_id == graph.start_id)
    for group in graph.groups:
        if group.kind == "fan_in":
            yield _Node(_join(group, path), "fan-in", is_join=True)


def _ways(graph: Graph, path: _Path) -> Iterator[_Way]:
    for group in graph.groups:
        if group.kind == "fan_in":
            for source_id in group.source_ids:
                yield _Way((*path, source_id), _join(group, path))
            yield _Way(_join(group, path), (*path, group.target_ids[0]))
            continue
        for edge in group.edges:
            if group.kind == "switch_case":
                cases = [case for case in group.branches if case.target_id == edge.target_id]
                asked = ("default" if case.is_default else _named(case.condition_name) for case in cases)
                label: str | None = " or ".join(asked)
            elif group.kind == "multi_selection":
                label = _named(group.selection_name)
            else:
                label = _named(edge.condition_name) if edge.has_condition else None
            yield _Way((*path, edge.source_id), (*path, edge.target_id), label)


# An executor's id is never empty, so a path with an empty piece cannot be an executor's.


def _join(group: EdgeGroup, path: _Path) -> _Path:
    return (*path, "", group.id)


def _box(path: _Path, child_id: str) -> _Path:
    return (*path, child_id, "")


def _named(name: str | None) -> str:
    return "conditional" if name is None or name == "<lambda>" else name


def _children(graph: Graph) -> Iterator[tuple[str, Graph]]:
    for executor_id, executor in graph.executors.items():
        child = child_graph(executor)
        if child is not None:
            yield executor_id, child


def _joined(path: _Path) -> str:
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in path)


def _dot_name(path: _Path) -> str:
    return _dot_text(_joined(path))


def _dot_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _mermaid_text(text: str) -> str:
    # Entities are the grammar's own way to show characters that it reads itself.
    escaped = "".join(f"#{ord(char)};" if char in '"#<>&`' else char for char in text)
    return '"' + escaped.replace("\n", " ") + '"'


def _mermaid_names(graph: Graph) -> dict[_Path, str]:
    """Give every node a name of letters, digits and underscores that no other node has."""
    names: dict[_Path, str] = {}
    used: set[str] = set()

    def take(node: _Path, wanted: str) -> None:
        name, number = wanted, 2
        while name in used:
            name, number = f"{wanted}_{number}", number + 1
        used.add(name)
        names[node] = name

    def collect(part: Graph, path: _Path) -> None:
        for node in _nodes(part, path):
            take(node.path, "__".join(_mermaid_word(piece) for piece in node.path if piece))
        for child_id, child in _children(part):
            take(_box(path, child_id), names[(*path, child_id)] + "__workflow")
            collect(child, (*path, child_id))

    collect(graph, ())
    return names


def _mermaid_word(text: str) -> str:
    word = re.sub(r"[^0-9A-Za-z_]", "_", text)
    return word if word[:1].isalpha() and word.lower() not in _MERMAID_WORDS else f"n_{word}"
