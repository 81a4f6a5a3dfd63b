"""The page of figures, made of what was measured: pure functions from reports to Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Facts", "comparison", "growth", "page"]

Report = Mapping[str, Any]

ENGINES = {
    "branchpoint": "branchpoint",
    "langgraph": "langgraph",
    "agent_framework": "agent-framework-core",
    "burr": "apache-burr",
}
PROSE = Path(__file__).with_name("page.md")
PER_STEP = ("W1", "W2", "W3")


@dataclass(frozen=True)
class Facts:
    """When, where and of what the figures were measured."""

    date: str
    commit: str
    machine: str
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Row:
    """One line of the comparison: each engine's case, and the floor it is compared with."""

    label: str
    workload: str
    cases: Mapping[str, tuple[str, str]]
    goal: str = ""


def _same(case: str, *engines: str) -> dict[str, tuple[str, str]]:
    return dict.fromkeys(engines or ENGINES, (case, case))


_W3 = {**_same("W3:sqlite", "langgraph", "burr"), "agent_framework": ("W3:file", "W3:file-nofsync")}
_DELTA = "W4:sqlite-delta"
ROWS = (
    Row("W1: a superstep without checkpoints", "W1", _same("W1"), "under 3"),
    Row("W2: with a checkpoint in memory", "W2", _same("W2"), "under 8"),
    Row("W3: with a durable checkpoint", "W3", {"branchpoint": ("W3:file", "W3:file"), **_W3}, "under 1.5"),
    Row("W3 on the loop's own thread", "W3", {"branchpoint": ("W3:file-loop", "W3:file")}, "under 1.0"),
    Row("W3 in SQLite", "W3", _same("W3:sqlite", "branchpoint", "langgraph", "burr"), "under 1.7"),
    Row(
        "W3 in SQLite, on the loop's own thread",
        "W3",
        {"branchpoint": ("W3:sqlite-loop", "W3:sqlite")},
        "under 1.3",
    ),
    Row(
        "W4: a message appended to a history in each superstep",
        "W4",
        {
            "branchpoint": ("W4:file", _DELTA),
            "langgraph": (_DELTA, _DELTA),
            "agent_framework": ("W4:file", _DELTA),
            "burr": ("W4:sqlite", _DELTA),
        },
        "under 4",
    ),
    Row("W4 on the loop's own thread", "W4", {"branchpoint": ("W4:file-loop", _DELTA)}, "under 3"),
    Row("W3 in PostgreSQL", "W3", _same("W3:postgres", "branchpoint", "langgraph", "burr"), "under 1.2"),
    Row("W4 in SQLite", "W4", {"branchpoint": ("W4:sqlite", _DELTA)}, "under 4"),
    Row("W4 without a reducer: get, append, set", "W4", {"branchpoint": ("W4:file-getset", _DELTA)}),
    Row("W5: a fan-out and a fan-in", "W5", dict.fromkeys(ENGINES, ("W5:none", "W5:none")), "under 12"),
    Row(
        "W5 with checkpoints in memory",
        "W5",
        dict.fromkeys(ENGINES, ("W5:memory", "W5:none")),
        "under 20",
    ),
    Row(
        "W6: executions at once, five durable steps each",
        "W6",
        {
            "branchpoint": ("W6:file", "W6:sqlite"),
            "langgraph": ("W6:sqlite", "W6:sqlite"),
            "agent_framework": ("W6:file", "W6:sqlite"),
            "burr": ("W6:sqlite", "W6:sqlite"),
        },
    ),
    Row("W6 in SQLite", "W6", _same("W6:sqlite", "branchpoint", "langgraph", "burr"), "under 0.5"),
    Row("W6 in PostgreSQL", "W6", _same("W6:postgres", "branchpoint", "langgraph", "burr"), "under 1.0"),
    Row(
        "W7: a fresh process opens a long history and does one step",
        "W7",
        {
            "branchpoint": ("W7:file", "W7:sqlite"),
            "langgraph": ("W7:sqlite-delta", "W7:sqlite"),
            "agent_framework": ("W7:file", "W7:sqlite"),
            "burr": ("W7:sqlite", "W7:sqlite"),
        },
        "under 2",
    ),
)


# The pieces of a page.


def table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return a Markdown table; the first column is text, the others are figures."""
    names = list(head)
    lines = ["| " + " | ".join(names) + " |", "| --- |" + " ---: |" * (len(names) - 1)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines)


def figure(value: float) -> str:
    """Return a number with the digits that mean something."""
    digits = 2 if value < 2 else 1 if value < 20 else 0
    return f"{value:,.{digits}f}"


@dataclass
class Index:
    """The summary of a comparison, by workload, engine and case; of several sizes the largest."""

    rows: dict[tuple[str, str, str], Report] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, summary: Iterable[Report]) -> Index:
        made = cls()
        for row in sorted(summary, key=lambda row: row["n"]):
            made.rows[row["workload"], row["peer"], row["case"]] = row
            made.sizes[row["workload"]] = row["n"]
        return made

    def ratio(self, workload: str, engine: str, case: str, floor: str) -> str:
        """Return the ratio as text; empty where there is none."""
        row = self.rows.get((workload, engine, case))
        if row is None or row["n"] != self.sizes[workload]:
            return ""
        if not row["ok"]:
            return "failed"
        return figure(row["ratios"][floor]) if floor in row["ratios"] else ""


def comparison(report: Report) -> list[str]:
    """Return the tables of the comparison, as far as it was made."""
    parts: list[str] = []
    if "summary" in report:
        index = Index.of(report["summary"])
        parts += [_ratios(index), _storage(index)]
    if "W8" in report:
        parts.append(_isolation(report["W8"]))
    if "W9" in report:
        parts.append(_weight(report["W9"]))
    return parts


def _ratios(index: Index) -> str:
    rows = []
    for row in ROWS:
        if row.workload in index.sizes:
            cells = [index.ratio(row.workload, name, *row.cases.get(name, ("", ""))) for name in ENGINES]
            size = f"{index.sizes[row.workload]:,}"
            rows.append([row.label, size, cells[0], row.goal, *cells[1:]])
    names = list(ENGINES.values())
    return table(["times the floor", "n", names[0], "goal", *names[1:]], rows)


def _storage(index: Index) -> str:
    cases = [
        ("branchpoint", "W4:file"),
        ("branchpoint", "W4:file-msgpack"),
        ("branchpoint", "W4:sqlite"),
        ("langgraph", _DELTA),
        ("langgraph", "W4:sqlite"),
        ("agent_framework", "W4:file"),
        ("burr", "W4:sqlite"),
        ("floor", _DELTA),
    ]
    rows = []
    for name, case in cases:
        row = index.rows.get(("W4", name, case))
        if row is not None and row["ok"] and row["n"] == index.sizes["W4"]:
            goal = "under 4" if (name, case) == cases[0] else ""
            grown = f"{row['rss_growth'] / 1e6:,.1f}"
            rows.append([f"{ENGINES.get(name, name)} `{case}`", f"{row['bytes'] / 1e6:,.1f}", goal, grown])
    size = index.sizes.get("W4", 0)
    return table([f"W4 with {size:,} messages", "MB on disk", "goal", "MB of memory"], rows) if rows else ""


def _isolation(report: Report) -> str:
    kept = (
        "dict | branchpoint copy_value",
        "dict | copy.deepcopy",
        "dict | hand-written walk",
        "dict | msgspec msgpack round trip",
        "dict | v1 encode+decode",
        "dataclass | branchpoint copy_value",
        "dataclass | copy.deepcopy",
        "Struct | branchpoint copy_value",
        "Struct | copy.deepcopy",
        "v1 Message | copy.deepcopy",
        "v1 Message | v1 encode+decode",
    )
    rows = []
    for name in kept:
        if name in report:
            label = name.replace(" | ", ", ").replace("v1", "agent-framework")
            rows.append([label, *(f"{seconds * 1000:.2f}" for seconds in report[name].values())])
    return table(["W8: an isolated copy, in milliseconds", "1,000 messages", "10,000 messages"], rows)


def _weight(report: Report) -> str:
    rows = [
        [
            name,
            f"{found['importtime_ms']:.0f}",
            found["modules"],
            f"{found['own_mb']:.2f}",
            f"{found['total_mb']:.1f}",
        ]
        for name, found in report.items()
    ]
    return table(["W9: weight", "ms to import", "modules", "MB itself", "MB with all it needs"], rows)


def _cases(summary: Iterable[Report]) -> str:
    rows = []
    for row in summary:
        if row["ok"]:
            unit, factor = ("µs", 1e6) if row["workload"] in PER_STEP else ("ms", 1e3)
            low, middle, high = (figure(row[key] * factor) for key in ("min", "median", "max"))
            floor, ratio = next(iter(row["ratios"].items()), ("", 0.0))
            rows.append(
                [
                    f"{row['workload']} n={row['n']:,} {row['peer']} `{row['case']}`",
                    f"{middle} {unit}",
                    f"{low} to {high}",
                    f"{figure(ratio)} `{floor}`" if floor else "",
                ]
            )
        else:
            rows.append([f"{row['workload']} {row['peer']} `{row['case']}`", "failed", "", ""])
    return table(["case", "median", "least to most", "times which floor"], rows)


def growth(report: Report) -> list[str]:
    """Return the tables of growth."""
    by_place = {(row["dimension"], row["size"], row["place"]): row for row in report["rows"]}
    rows = []
    for name, size in dict.fromkeys(
        (row["dimension"], row["size"]) for row in report["rows"] if row["place"] == "file"
    ):
        memory, file = (by_place[name, size, place] for place in ("memory", "file"))
        cells = [
            _cost(memory),
            figure(memory["ratio"]),
            _cost(file),
            figure(file["ratio"]),
            f"{file['bytes']:,.0f}",
        ]
        rows.append([name, f"{size:,}", *cells])
    head = ["what there is", "of it", "µs in memory", "ratio", "µs in a file", "ratio", "bytes written"]
    peaks = []
    for row in report["peaks"]:
        data, more = row["data"], row["grown"]
        peaks.append([f"{row['messages']:,}", f"{data / 1e6:.1f}", f"{more / 1e6:.1f}", figure(more / data)])
    tables = table(head, rows)
    resumed = [
        [row["dimension"], f"{row['size']:,}", _cost(row), figure(row["ratio"])]
        for row in report["rows"]
        if row["place"] == "sqlite"
    ]
    if resumed:
        what = "µs to load the head, do a superstep and store it"
        tables += "\n\n" + table(["what there is in SQLite", "of it", what, "ratio"], resumed)
    return [
        tables,
        table(["messages appended, one a superstep", "MB of data", "MB of memory grown", "ratio"], peaks),
        _agents(report["agents"]),
    ]


def _agents(report: Report) -> str:
    turns = [
        [
            f"{row['messages']:,}",
            f"{row['ms']:.1f}",
            "under 10" if row["messages"] == 1_000 else "",
            figure(row["ratio"]),
        ]
        for row in report["turns"]
    ]
    talks = [
        [f"{row['user']:,} and {row['reply']:,}", f"{row['turns']:,}", figure(row["ratio"]), "under 3"]
        for row in report["talks"]
    ]
    carried = [
        [f"{row['turns']:,}", f"{row['bytes'] / 1e6:.2f}", f"{row['bytes'] / row['turns']:,.0f}"]
        for row in report["carried"]
    ]
    return "\n\n".join(
        (
            table(["a turn over a history of messages", "ms", "goal", "times the floor"], turns),
            table(["characters of user and agent in a turn", "turns", "bytes over text", "goal"], talks),
            table(["turns in a session that carries all", "MB", "bytes a turn"], carried),
        )
    )


def _cost(row: Report) -> str:
    return f"{row['microseconds']:,.0f}"


def page(facts: Facts, compared: Report, grown: Report) -> str:
    """Return the page."""
    ratios, storage, isolation, weight = comparison(compared)
    growth_table, peaks, agents = growth(grown)
    versions = ", ".join(f"{name} {version}" for name, version in facts.versions.items())
    return PROSE.read_text(encoding="utf-8").format(
        date=facts.date,
        commit=facts.commit,
        machine=facts.machine,
        versions=versions,
        ratios=ratios,
        storage=storage,
        isolation=isolation,
        weight=weight,
        growth=growth_table,
        peaks=peaks,
        agents=agents,
        cases=_cases(compared["summary"]),
    )
