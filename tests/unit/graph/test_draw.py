"""Drawings: the same picture as Mermaid and as DOT."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from branchpoint.graph import EdgeGroup, SwitchBranch, describe, to_digraph, to_mermaid
from tests.unit.graph.shapes import Count, Inside, JoinText, Text, graph_of


def is_long(text: str) -> bool:
    return len(text) > 3


def pick(text: str, ids: list[str]) -> list[str]:
    return ids


def diamond(**more: Any) -> Any:
    executors = [Text(id="src"), Text(id="b"), Text(id="c"), JoinText(id="j")]
    groups = [EdgeGroup.fan_out("src", ["b", "c"]), EdgeGroup.fan_in(["b", "c"], "j")]
    more = {"output_ids": frozenset({"j"}), "intermediate_ids": frozenset({"c"}), **more}
    return graph_of(executors, groups, **more)


def test_a_flowchart() -> None:
    assert to_mermaid(diamond()).split("\n") == [
        "flowchart TD",
        '  src["src (Start)"];',
        '  b["b"];',
        '  c["c (Intermediate)"];',
        '  j["j (Output)"];',
        '  fan_in_b_c__j(("fan-in"));',
        "  src --> b;",
        "  src --> c;",
        "  b --> fan_in_b_c__j;",
        "  c --> fan_in_b_c__j;",
        "  fan_in_b_c__j --> j;",
    ]


def test_a_digraph() -> None:
    assert to_digraph(diamond()).split("\n") == [
        "digraph Workflow {",
        "  rankdir=TD;",
        "  node [shape=box, style=filled, fillcolor=lightblue];",
        "  edge [color=black, arrowhead=vee];",
        '  "src" [fillcolor=lightgreen, label="src\\n(Start)"];',
        '  "b" [label="b"];',
        '  "c" [label="c\\n(Intermediate)"];',
        '  "j" [label="j\\n(Output)"];',
        '  "/fan_in:b,c->j" [shape=ellipse, fillcolor=lightgoldenrod, label="fan-in"];',
        '  "src" -> "b";',
        '  "src" -> "c";',
        '  "b" -> "/fan_in:b,c->j";',
        '  "c" -> "/fan_in:b,c->j";',
        '  "/fan_in:b,c->j" -> "j";',
        "}",
    ]


def test_every_executor_that_can_yield_is_an_output_by_default() -> None:
    text = to_mermaid(graph_of([Text(id="a"), Count(id="b")], [EdgeGroup.single("a", "b")]))
    assert '  a["a (Start, Output)"];' in text
    assert '  b["b"];' in text


def test_conditional_ways_are_dashed_and_labelled() -> None:
    branches = [SwitchBranch("c", is_long), SwitchBranch("b", bool), SwitchBranch("c")]
    graph = graph_of(
        [Text(id=key) for key in "abcde"],
        [
            EdgeGroup.single("a", "b", lambda text: True),
            EdgeGroup.single("b", "a", is_long),
            EdgeGroup.switch_case("b", branches[:1] + branches[2:]),
            EdgeGroup.multi_selection("c", ["d", "e"], pick),
        ],
    )
    mermaid, dot = to_mermaid(graph), to_digraph(graph)
    assert '  a -.->|"conditional"| b;' in mermaid
    assert '  b -.->|"is_long"| a;' in mermaid
    assert '  b -.->|"is_long or default"| c;' in mermaid
    assert '  c -.->|"pick"| d;' in mermaid
    assert '  "a" -> "b" [style=dashed, label="conditional"];' in dot
    assert '  "b" -> "a" [style=dashed, label="is_long"];' in dot
    assert '  "b" -> "c" [style=dashed, label="is_long or default"];' in dot
    assert "-->" not in mermaid


def test_ids_are_escaped_and_stay_apart() -> None:
    ids = ["a-b", "a_b", "end", "1st", 'say "hi"', "a/b", "back\\slash", "ü", "two\nlines"]
    executors = [Text(id=key) for key in ids]
    groups = [EdgeGroup.single(before, after) for before, after in pairwise(ids)]
    mermaid, dot = to_mermaid(graph_of(executors, groups)), to_digraph(graph_of(executors, groups))
    for line in (
        '  a_b["a-b (Start, Output)"];',
        '  a_b_2["a_b (Output)"];',
        '  n_end["end (Output)"];',
        '  n_1st["1st (Output)"];',
        '  say__hi_["say #34;hi#34; (Output)"];',
        "  a_b --> a_b_2;",
        '  two_lines["two lines (Output)"];',
    ):
        assert line in mermaid.split("\n")
    for line in (
        '  "say \\"hi\\"" [label="say \\"hi\\"\\n(Output)"];',
        '  "back\\\\slash" [label="back\\\\slash\\n(Output)"];',
        '  "a%2Fb" [label="a/b\\n(Output)"];',
        '  "a-b" -> "a_b";',
    ):
        assert line in dot.split("\n")
    names = [line.split("[")[0] for line in mermaid.split("\n") if "[" in line]
    assert len(names) == len(set(names)) == len(ids)


def test_a_child_workflow_is_a_box_of_its_own() -> None:
    deep = graph_of([Text(id="a"), Text(id="workflow")], [EdgeGroup.single("a", "workflow")])
    middle = graph_of([Text(id="a"), Inside("deep", deep)], [EdgeGroup.single("a", "deep")])
    outer = graph_of([Text(id="a"), Inside("child", middle)], [EdgeGroup.single("a", "child")])
    mermaid, dot = to_mermaid(outer).split("\n"), to_digraph(outer).split("\n")
    for line in (
        '  subgraph child__workflow["sub-workflow: child"]',
        '    child__a["a (Start, Output)"];',
        "    child__a --> child__deep;",
        '    subgraph child__deep__workflow["sub-workflow: deep"]',
        '      child__deep__workflow_2["workflow (Output)"];',
        "      child__deep__a --> child__deep__workflow_2;",
        "    end",
        "  end",
    ):
        assert line in mermaid
    for line in (
        '  subgraph "cluster_child" {',
        '    label="sub-workflow: child";',
        '    subgraph "cluster_child/deep" {',
        '      "child/deep/a" -> "child/deep/workflow";',
    ):
        assert line in dot
    assert to_digraph(outer).count("{") == to_digraph(outer).count("}") == 3


def test_a_description_is_plain_json_and_the_readers_own() -> None:
    graph = diamond(name="diamond", description="four", max_iterations=7)
    plain = describe(graph)
    assert plain["name"] == "diamond"
    assert plain["description"] == "four"
    assert plain["start_executor_id"] == "src"
    assert plain["max_iterations"] == 7
    assert list(plain["executors"]) == ["src", "b", "c", "j"]
    assert [group["id"] for group in plain["edge_groups"]] == ["fan_out:src->b,c", "fan_in:b,c->j"]
    assert plain["output_executors"] == ["j"]
    assert plain["intermediate_executors"] == ["c"]
    assert plain["graph_signature_hash"] == graph.signature_hash
    plain["executors"].clear()
    assert list(describe(graph)["executors"]) == ["src", "b", "c", "j"]


def test_a_description_holds_the_childs() -> None:
    child = graph_of([Text(id="a")], name="child")
    plain = describe(graph_of([Inside("inner", child)], name="outer"))
    assert plain["executors"]["inner"]["workflow"] == describe(child)
