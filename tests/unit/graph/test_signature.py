"""The signature: what it covers, that it is the same everywhere, and how a difference is told."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from branchpoint.graph import (
    EdgeGroup,
    FunctionExecutor,
    Graph,
    StateKey,
    SwitchBranch,
    WorkflowContext,
    explain_difference,
    signature_hash,
)
from tests.unit.graph.shapes import Count, Inside, JoinText, Text, graph_of, shout


def is_long(text: str) -> bool:
    return len(text) > 3


def is_short(text: str) -> bool:
    return len(text) <= 3


def pick(text: str, ids: list[str]) -> list[str]:
    return ids[:1]


def diamond(**more: Any) -> Graph:
    executors = [Text(id="src"), Text(id="b"), Text(id="c"), JoinText(id="j")]
    groups = [EdgeGroup.fan_out("src", ["b", "c"]), EdgeGroup.fan_in(["b", "c"], "j")]
    return graph_of(executors, groups, **{"name": "diamond", **more})


def pair(condition: Any = None, *, ids: tuple[str, str] = ("a", "b"), name: str = "pair") -> Graph:
    groups = [EdgeGroup.single(*ids, condition)]
    return graph_of([Text(id=ids[0]), Text(id=ids[1])], groups, name=name)


def switch(*branches: SwitchBranch) -> Graph:
    executors = [Text(id="a"), Text(id="b"), Text(id="c")]
    return graph_of(executors, [EdgeGroup.switch_case("a", branches)], name="switch")


def test_the_signature_is_readable() -> None:
    assert diamond().signature == {
        "name": "diamond",
        "start": "src",
        "executors": {
            "b": {"type": "Text"},
            "c": {"type": "Text"},
            "j": {"type": "JoinText"},
            "src": {"type": "Text"},
        },
        "edges": [
            {"kind": "fan_in", "sources": ["b", "c"], "targets": ["j"]},
            {"kind": "fan_out", "sources": ["src"], "targets": ["b", "c"]},
        ],
    }
    assert len(diamond().signature_hash) == 22
    assert diamond().signature_hash == signature_hash(json.loads(json.dumps(diamond().signature)))


def test_the_order_of_declaration_does_not_show() -> None:
    executors = [JoinText(id="j"), Text(id="c"), Text(id="src"), Text(id="b")]
    groups = [EdgeGroup.fan_in(["c", "b"], "j"), EdgeGroup.fan_out("src", ["c", "b"])]
    other = graph_of(executors, groups, name="diamond", start_id="src")
    assert other.signature_hash == diamond().signature_hash
    assert json.dumps(other.signature) == json.dumps(diamond().signature)


def test_what_is_not_covered() -> None:
    plain = diamond().signature_hash
    assert diamond(max_iterations=7).signature_hash == plain
    assert diamond(output_ids=frozenset({"j"})).signature_hash == plain
    assert diamond(description="four", undelivered="drop").signature_hash == plain
    assert diamond(state_keys={"k": StateKey("k", int)}).signature_hash == plain
    kept = [EdgeGroup.fan_out("src", ["b", "c"]), EdgeGroup.fan_in(["b", "c"], "j", keep=True)]
    assert graph_of(list(diamond().executors.values()), kept, name="diamond").signature_hash == plain


def test_what_is_covered() -> None:
    edge = EdgeGroup.single("a", "b")
    graphs = [
        pair(),
        pair(name="other"),
        pair(ids=("a", "x")),
        pair(is_long),
        pair(is_short),
        graph_of([Text(id="a"), Text(id="b")], [edge], name="pair", start_id="b"),
        graph_of([Text(id="a"), Count(id="b")], [edge], name="pair"),
        graph_of([Text(id="a"), Text(id="b")], [], name="pair"),
        graph_of([Text(id="a"), Text(id="b")], [edge, EdgeGroup.single("b", "a")], name="pair"),
        switch(SwitchBranch("b", is_long), SwitchBranch("c")),
        switch(SwitchBranch("b", is_short), SwitchBranch("c")),
        switch(SwitchBranch("c", is_long), SwitchBranch("b")),
        switch(SwitchBranch("b", is_long), SwitchBranch("c", is_short), SwitchBranch("c")),
        switch(SwitchBranch("c", is_short), SwitchBranch("b", is_long), SwitchBranch("c")),
    ]
    assert len({graph.signature_hash for graph in graphs}) == len(graphs)


def test_conditions_count_by_name_alone() -> None:
    assert pair(lambda text: True).signature_hash == pair(lambda text: False).signature_hash
    assert pair(functools.partial(is_long)).signature_hash == pair(is_long).signature_hash
    assert pair(lambda text: True).signature["edges"][0]["condition"] == "<lambda>"


def test_a_function_executor_counts_by_its_own_function() -> None:
    async def shout_again(text: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(text)

    def named(executor: FunctionExecutor) -> str:
        return str(graph_of([executor]).signature["executors"]["shout"]["type"])

    assert named(shout) == "shout"
    own = named(FunctionExecutor(shout_again, id="shout"))
    assert own.endswith("shout_again")
    assert "branchpoint" not in own


def test_an_attribute_named_function_is_not_taken_for_the_type() -> None:
    text = Text(id="a")
    text.function = is_long
    assert graph_of([text]).signature["executors"]["a"] == {"type": "Text"}


def test_a_childs_signature_is_part_of_its_parents() -> None:
    parent = graph_of([Inside("inner", pair())], name="outer")
    assert parent.signature["executors"]["inner"] == {"type": "Inside", "workflow": pair().signature}
    assert parent.signature_hash != graph_of([Inside("inner", pair(is_long))], name="outer").signature_hash
    assert explain_difference(
        parent.signature, graph_of([Inside("inner", pair(is_long))], name="outer").signature
    ) == ["inside 'inner': condition of edge 'a' -> 'b' was none, is now 'is_long'"]


_SCRIPT = """
from branchpoint.graph import EdgeGroup, Executor, Graph, SwitchBranch, WorkflowContext, handler
class Text(Executor):
    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None: ...
def is_long(text: str) -> bool: return True
ids = {"a", "b", "c"}
groups = (
    EdgeGroup.single("b", "a"),
    EdgeGroup.switch_case(
        "a", [SwitchBranch("b", is_long), SwitchBranch("c", lambda text: True), SwitchBranch("b")]
    ),
)
graph = Graph(name="same", start_id="a", executors={key: Text(id=key) for key in ids}, groups=groups)
print(graph.signature_hash)
"""


def test_the_hash_is_the_same_in_every_process() -> None:
    hashes = set()
    for seed in ("0", "1", "424242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT], env=environment, capture_output=True, text=True, check=True
        )
        hashes.add(done.stdout.strip())
    groups = [
        EdgeGroup.switch_case(
            "a", [SwitchBranch("b", is_long), SwitchBranch("c", lambda text: False), SwitchBranch("b")]
        ),
        EdgeGroup.single("b", "a"),
    ]
    here = graph_of([Text(id="a"), Text(id="b"), Text(id="c")], groups, name="same")
    assert hashes == {here.signature_hash}


def test_this_hash_never_changes() -> None:
    """Checkpoints hold it: another value would make every stored checkpoint foreign."""
    assert diamond().signature_hash == "nEePzXvPGBglsAWeVCUD7w"


def lines(old: Graph, new: Graph) -> list[str]:
    return explain_difference(old.signature, new.signature)


def test_no_difference_is_no_line() -> None:
    assert lines(diamond(), diamond(max_iterations=3)) == []
    assert explain_difference({}, {}) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (pair(name="old"), pair(name="new"), ["workflow name was 'old', is now 'new'"]),
        (
            graph_of([Text(id="a")], name=None),
            graph_of([Text(id="a")], name="n"),
            ["workflow name was none, is now 'n'"],
        ),
        (
            pair(),
            graph_of(list(pair().executors.values()), pair().groups, name="pair", start_id="b"),
            ["start executor was 'a', is now 'b'"],
        ),
        (pair(), pair(ids=("a", "x")), ["executor renamed: 'b' is now 'x' (Text)"]),
        (pair(), pair(ids=("x", "b")), ["executor renamed: 'a' is now 'x' (Text)"]),
        (
            pair(),
            graph_of([Text(id="a"), Count(id="b")], pair().groups, name="pair"),
            ["executor 'b' changed its type: Text is now Count"],
        ),
        (
            pair(),
            graph_of([Text(id="a")], name="pair"),
            ["executor removed: 'b' (Text)", "edge removed: 'a' -> 'b' (single)"],
        ),
        (
            graph_of([Text(id="a")], name="pair"),
            pair(is_long),
            ["executor added: 'b' (Text)", "edge added: 'a' -> 'b' (single, if is_long)"],
        ),
        (pair(is_long), pair(is_short), ["condition of edge 'a' -> 'b' was 'is_long', is now 'is_short'"]),
        (pair(is_long), pair(), ["condition of edge 'a' -> 'b' was 'is_long', is now none"]),
        (
            switch(SwitchBranch("b", is_long), SwitchBranch("c")),
            switch(SwitchBranch("c", is_long), SwitchBranch("b")),
            [
                (
                    "cases of the switch 'a' -> ['b', 'c'] were is_long -> 'b', default -> 'c', "
                    "are now is_long -> 'c', default -> 'b'"
                )
            ],
        ),
        (
            switch(SwitchBranch("b", is_long), SwitchBranch("c")),
            graph_of([Text(id=x) for x in "abc"], [EdgeGroup.fan_out("a", ["b", "c"])], name="switch"),
            ["edge 'a' -> ['b', 'c'] changed its kind: switch_case is now fan_out"],
        ),
        (
            graph_of(
                [Text(id=x) for x in "abc"], [EdgeGroup.multi_selection("a", ["b", "c"], pick)], name="m"
            ),
            graph_of(
                [Text(id=x) for x in "abc"],
                [EdgeGroup.multi_selection("a", ["b", "c"], lambda text, ids: ids)],
                name="m",
            ),
            ["selection of edge 'a' -> ['b', 'c'] was 'pick', is now '<lambda>'"],
        ),
    ],
)
def test_a_difference_is_told_in_one_line(old: Graph, new: Graph, expected: list[str]) -> None:
    assert lines(old, new) == expected


def test_a_renamed_executor_is_found_by_its_edges() -> None:
    old = graph_of(
        [Text(id="s"), Text(id="x"), Text(id="y")],
        [EdgeGroup.single("s", "x"), EdgeGroup.single("x", "y")],
        name="n",
    )
    new = graph_of(
        [Text(id="s"), Text(id="p"), Text(id="q")],
        [EdgeGroup.single("s", "q"), EdgeGroup.single("q", "p")],
        name="n",
    )
    assert lines(old, new) == [
        "executor renamed: 'x' is now 'q' (Text)",
        "executor renamed: 'y' is now 'p' (Text)",
    ]


def test_several_differences_are_all_told() -> None:
    told = lines(
        diamond(), graph_of([Text(id="src"), Count(id="new")], [EdgeGroup.single("src", "new")], name="two")
    )
    assert told[0] == "workflow name was 'diamond', is now 'two'"
    assert "executor removed: 'j' (JoinText)" in told
    assert "executor added: 'new' (Count)" in told
    assert "edge removed: ['b', 'c'] -> 'j' (fan_in)" in told
    assert "edge added: 'src' -> 'new' (single)" in told


def test_a_child_that_came_or_went_is_told() -> None:
    plain = graph_of([Text(id="inner")], name="outer")
    nested = graph_of([Inside("inner", pair())], name="outer")
    assert "executor 'inner' gained its child workflow" in lines(plain, nested)
    assert "executor 'inner' lost its child workflow" in lines(nested, plain)


def test_parts_this_version_does_not_know_are_told_too() -> None:
    old = {**pair().signature, "code": "f(1)"}
    assert explain_difference(old, pair().signature) == ["code was 'f(1)', is now none"]
    assert explain_difference(old, {**old, "code": ["f", 2]}) == ["""code was 'f(1)', is now ["f",2]"""]
    changed = {**old, "edges": [{**old["edges"][0], "weight": 2}]}
    assert explain_difference(old, changed) == [
        "the signatures differ in a detail that this version cannot name"
    ]
