"""The document review in `examples`: its parts, and the whole play as a person would start it."""

from __future__ import annotations

import importlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from branchpoint import FileCheckpointStorage, MemoryCheckpointStorage, StorageError
from branchpoint.codec import isolated_registry
from tests.servers.openai import openai_server

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "document_review"

Part = Callable[[str], ModuleType]


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Iterator[Part]:
    """Import a file of the example, as the example itself does; nothing of it stays imported."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    with isolated_registry():
        yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(EXAMPLE)):
            del sys.modules[name]


def perform(
    *arguments: str | Path, home: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Start the play without a terminal, and without a model unless the environment names one."""
    command = [sys.executable, EXAMPLE, "--pace", "0", *arguments]
    inherited = {name: value for name, value in os.environ.items() if name != "DEMO_MODEL"}
    if home is not None:
        environment["HOME"] = str(home)
    return subprocess.run(
        [str(one) for one in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
        env={**inherited, **environment},
    )


@pytest.fixture
def odd_documents(tmp_path: Path) -> Path:
    """A folder as people have them: of everything a little."""
    folder = tmp_path / "odd documents"
    (folder / "nested" / "deeper").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "not.md").write_text("# Not this one\n")
    (folder / "first.md").write_text(
        "# First\n\nIt links to [nowhere](gone.md) and [there](nested/second.txt).\n"
    )
    (folder / "nested" / "second.txt").write_text(
        "A plain text.\n\nThe plain text has a second plain paragraph.\n"
    )
    (folder / "nested" / "deeper" / "[red]third[#red].rst").write_text(
        "Third\n=====\n\nSome words of the third.\n"
    )
    (folder / "[empty]_*.md").write_text("")
    (folder / "binary.md").write_bytes(bytes(range(256)))
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / "broken.md").symlink_to(folder / "nothing")
    (folder / "two\nlines.md").write_text("# Two lines\n\nIts name has two of them.\n")
    with open(os.fsencode(folder) + b"/no-utf8-\xff.md", "wb") as file:
        file.write(b"# Caf\xe9\n\nNeither its name nor its text is UTF-8.\n")
    return folder


NAMES = [
    "[empty]_*.md",
    "binary.md",
    "broken.md",
    "first.md",
    "nested/deeper/[red]third[#red].rst",
    "nested/second.txt",
    "no-utf8-%FF.md",
    "two%0Alines.md",
]

# The summariser.


def test_a_summary_has_title_length_and_key_sentences(part: Part) -> None:
    summary = part("summarise").summarise(
        "---\nlayout: page\n---\n\n# Of *Bees*\n\n"
        "Bees make honey. The weather was fine on that day.\nHoney from bees keeps, and bees need honey.\n\n"
        "```\nhoney = bees * bees * honey\n```\n\n- Bees and honey belong in [one list](x.md).\n- Short one.\n"
    )
    assert summary.title == "Of Bees"
    assert summary.words == 29
    assert summary.minutes == 1
    assert summary.sentences == (
        "The weather was fine on that day.",
        "Honey from bees keeps, and bees need honey.",
        "Bees and honey belong in one list.",
    )


def test_a_summary_is_a_pure_function(part: Part) -> None:
    summarise = part("summarise").summarise
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert summarise(text) == summarise(text)
    assert summarise(text).title == "branchpoint"


@pytest.mark.parametrize(
    "text", ["", "\n \n", "```\nonly code\n```\n", "<!-- only a comment -->", "***", "---\n"]
)
def test_a_text_without_words_has_an_empty_summary(part: Part, text: str) -> None:
    module = part("summarise")
    assert module.summarise(text) == module.Summary("", 0, 0, ())


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Underlined\n==========\n\nText.\n", "Underlined"),
        ("# Closed #\n", "Closed"),
        ("No heading at all\nand a second line.\n", "No heading at all"),
        ("First a line.\r\n\r\n## `code_name` later ##\r\n", "code_name later"),
        ("# " + "long " * 40, ("long " * 19 + "long") + "…"),
        ("# With \x1b[31mcolour\x1b[0m", "With [31mcolour[0m"),
    ],
)
def test_the_title_is_the_first_heading_or_the_first_line(part: Part, text: str, title: str) -> None:
    assert part("summarise").summarise(text).title == title


def test_sentences_end_where_they_end(part: Part) -> None:
    summary = part("summarise").summarise(
        'It costs 3.50 a piece, e.g. here. "Did you say `so.`?" he asked. **All gone.** Then more words came.'
    )
    assert summary.sentences == (
        "It costs 3.50 a piece, e.g. here.",
        '"Did you say so.?" he asked.',
        "Then more words came.",
    )


def test_a_text_without_spaces_has_words_and_sentences(part: Part) -> None:
    summary = part("summarise").summarise("# 題\n\n第一章。これは長い文章です。終わり。\n")
    assert (summary.title, summary.words) == ("題", 16)
    assert summary.sentences == ("これは長い文章です。",)


def test_reading_time_is_rounded_up(part: Part) -> None:
    reading_minutes = part("summarise").reading_minutes
    assert [reading_minutes(words) for words in (0, 1, 230, 231, 2300)] == [0, 1, 1, 2, 10]


def test_broken_links_are_relative_ones_that_lead_nowhere(part: Part) -> None:
    text = (
        "[a](there.md) [b](gone.md) [c](gone.md#part) [again](gone.md) ![d](pictures/x%20y.png 'title')\n"
        "[web](https://example.org/gone.md) [mail](mailto:a@b.c) [root](/gone) [here](#part) [e](<with space.md>)\n"
        "`[code](code.md)`\n\n```\n[fenced](fenced.md)\n```\n\n[ref]: reference.md 'title'\n[f](wiki_(bees).md)\n"
    )
    asked: list[str] = []

    def exists(path: str) -> bool:
        asked.append(path)
        return path == "there.md"

    found = part("summarise").broken_links(text, exists)
    assert found == (
        "gone.md",
        "gone.md#part",
        "pictures/x%20y.png",
        "with space.md",
        "reference.md",
        "wiki_(bees).md",
    )
    assert "pictures/x y.png" in asked


# The documents of a folder.


def test_every_document_is_found_whatever_its_name(part: Part, odd_documents: Path) -> None:
    documents = part("documents")
    found = documents.find([odd_documents])
    assert list(found.documents) == NAMES
    assert documents.to_path(found.root) == odd_documents
    for name in found.documents:
        name.encode()  # legal text
        assert os.path.lexists(odd_documents / documents.to_path(name))


@pytest.mark.parametrize(
    "name", ["plain.md", "100%.md", "%41", b"\xff\xfe".decode("utf-8", "surrogateescape"), "é"]
)
def test_a_name_leads_back_to_its_path(part: Part, name: str) -> None:
    documents = part("documents")
    assert str(documents.to_path(documents.to_name(name))) == name


def test_a_problem_of_a_document_is_told_not_raised(part: Part, odd_documents: Path) -> None:
    documents = part("documents")
    root = documents.to_name(odd_documents)
    problems = {name: documents.examine(root, name).problem for name in NAMES}
    assert {name: problem for name, problem in problems.items() if problem is not None} == {
        "[empty]_*.md": "is empty",
        "binary.md": "is binary, not text",
        "broken.md": "cannot be read: No such file or directory",
    }
    assert documents.examine(root, "first.md").broken_links == ("gone.md",)
    assert documents.examine(root, "no-utf8-%FF.md").summary.title == "Café"


def test_a_pipe_with_the_name_of_a_document_holds_nobody_up(part: Part, tmp_path: Path) -> None:
    documents = part("documents")
    os.mkfifo(tmp_path / "pipe.md")
    assert documents.find([tmp_path]).documents == ()
    assert documents.examine(documents.to_name(tmp_path), "pipe.md").problem == "is no regular file"


def test_a_folder_that_cannot_be_opened_is_named(part: Part, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    (tmp_path / "open.md").write_text("Open.\n")
    if os.access(closed, os.R_OK):
        pytest.skip("this user may read everything")
    found = part("documents").find([tmp_path])
    assert (found.documents, found.closed_folders) == (("open.md",), ("closed",))


def test_a_link_that_leads_out_of_the_folder_is_listed_and_not_read(part: Part, tmp_path: Path) -> None:
    documents = part("documents")
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "outside.md").write_text("# A secret\n")
    (folder / "inside.md").write_text("# No secret\n")
    (folder / "within.md").symlink_to("inside.md")
    (folder / "out.md").symlink_to(tmp_path / "outside.md")
    (folder / "broken-out.md").symlink_to(tmp_path / "nothing.md")
    (folder / "circle.md").symlink_to("circle.md")
    found = documents.find([folder])
    assert found.documents == ("broken-out.md", "circle.md", "inside.md", "out.md", "within.md")
    problems = {name: documents.examine(found.root, name).problem for name in found.documents}
    assert problems.pop("circle.md").startswith("cannot be read: ")
    assert problems == {
        "broken-out.md": "leads out of the folder",
        "inside.md": None,
        "out.md": "leads out of the folder",
        "within.md": None,
    }


def test_a_place_that_is_a_link_is_what_it_leads_to(part: Part, tmp_path: Path) -> None:
    documents = part("documents")
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "first.md").write_text("# First\n")
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "file.md").symlink_to("real/first.md")
    for place in ("folder", "file.md"):
        found = documents.find([tmp_path / place])
        assert (documents.to_path(found.root), found.documents) == (tmp_path / "real", ("first.md",))
        assert documents.examine(found.root, "first.md").summary.title == "First"


def test_files_that_are_no_documents_are_counted(
    part: Part, tmp_path: Path, write_file: Callable[[str, str], Path]
) -> None:
    for name in ("a.md", "picture.png", "deeper/b.txt", "deeper/data.json", ".hidden/c.png"):
        write_file(f"docs/{name}", "x")
    find = part("documents").find
    folder = tmp_path / "docs"
    assert (find([folder]).documents, find([folder]).others) == (("a.md", "deeper/b.txt"), 2)
    # What was asked for by its own name is a document.
    assert find([folder, folder / "picture.png"]).others == 1


# Publishing.


def test_r60_publishing_under_the_same_key_writes_once(part: Part, tmp_path: Path) -> None:
    publish = part("report").publish
    assert publish(tmp_path / "out", "report", "k1", "first") == ("report-k1.md", True)
    assert publish(tmp_path / "out", "report", "k1", "again") == ("report-k1.md", False)
    assert publish(tmp_path / "out", "report", "k2", "other") == ("report-k2.md", True)
    assert {file.name: file.read_text() for file in (tmp_path / "out").iterdir()} == {
        "report-k1.md": "first",
        "report-k2.md": "other",
    }


class FailingOnce(MemoryCheckpointStorage):
    """Refuses the first commit of the boundary `completed`, as a disk that is full would."""

    failed = False

    async def commit_snapshot(self, checkpoint: Any, snapshot: Any, **heads: Any) -> None:
        if snapshot.boundary == "completed" and not self.failed:
            self.failed = True
            raise StorageError("the disk is full")
        await super().commit_snapshot(checkpoint, snapshot, **heads)


async def test_r60_a_report_whose_commit_failed_is_not_published_twice(
    part: Part, odd_documents: Path, tmp_path: Path
) -> None:
    documents, ticks = part("documents"), part("ticks")
    services = part("workflow").Services(ticks.TickLog(tmp_path / "ticks.jsonl"), tmp_path / "published")
    workflow = part("workflow").build(services)
    found = documents.find([odd_documents])
    checkpoint = workflow.create_checkpoint(checkpoint_storage=FailingOnce())
    job = part("messages").Job(found.root, found.documents, batch_size=3)
    result = await workflow.run(job, checkpoint=checkpoint)
    (question,) = result.get_request_info_events()

    with pytest.raises(StorageError, match="the disk is full"):
        await workflow.run(responses={question.request_id: True}, checkpoint=checkpoint)
    published = {file.name: file.stat().st_mtime_ns for file in services.published.iterdir()}
    result = await workflow.run(checkpoint=checkpoint)

    assert len(published) == 1
    assert {file.name: file.stat().st_mtime_ns for file in services.published.iterdir()} == published
    assert [(outcome.kind, outcome.file) for outcome in result.get_outputs()] == [("report", *published)]
    calls = [tick.call for tick in services.ticks.read() if tick.executor == "publisher"]
    assert len(calls) == 2
    assert len(set(calls)) == 1


async def test_a_second_job_on_one_checkpoint_begins_afresh(
    part: Part, odd_documents: Path, tmp_path: Path
) -> None:
    services = part("workflow").Services(
        part("ticks").TickLog(tmp_path / "ticks.jsonl"), tmp_path / "published"
    )
    workflow = part("workflow").build(services)
    checkpoint = workflow.create_checkpoint()
    root = part("documents").to_name(odd_documents)
    for documents in (("first.md",), ("nested/second.txt", "first.md")):
        job = part("messages").Job(root, documents, batch_size=1)
        (question,) = (await workflow.run(job, checkpoint=checkpoint)).get_request_info_events()
        assert question.data.documents == len(documents)
        await workflow.run(responses={question.request_id: False}, checkpoint=checkpoint)


# What it says, and what it asks.


@pytest.mark.parametrize(
    ("typed", "answer"), [("yes", True), ("y", True), (" YES ", True), ("no", False), ("N", False)]
)
def test_the_question_takes_words_and_letters(part: Part, typed: str, answer: bool) -> None:
    terminal = part("terminal")
    screen = terminal.Console(file=io.StringIO(), markup=False)
    asked = terminal.YesOrNo.ask("May it?", console=screen, stream=io.StringIO(f"perhaps\n\n{typed}\n"))
    assert asked is answer
    assert screen.file.getvalue().count("Please answer yes or no.") == 2
    assert "[yes/no]" in screen.file.getvalue()


# The whole play.


async def test_r58_the_play_keeps_every_claim_it_makes(
    part: Part, odd_documents: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    played = perform("--docs", odd_documents, "--store", store, "--batch", "2", "--yes")
    assert played.returncode == 0, played.stdout + played.stderr
    assert played.stderr == ""
    for line in (
        "killed in batch 2 of 4",
        "$ kill -9 ",
        "✓ a superstep was in flight: 4 handlers had been entered, of 2 documents 1 was done",
        "✓ in storage: 4 whole snapshots up to superstep 3, 2 reviews, and nothing of the superstep in flight",
        "✓ of 3 completed supersteps none was done again",
        "✓ superstep 4, the one in flight, was done again as a whole: 4 calls, 4 of them under the key",
        "✓ 8 documents examined, 1 of them twice, those of the superstep in flight",
        "✓ yet each counts once: 8 reviews saved, and the reviewers' own counters add up to 8",
        "[empty]_*.md: is empty",
        "✓ the first branch is untouched, and so is what it published",
        "◀ head",
        "16 of 16 claims are true",
    ):
        assert line in played.stdout, played.stdout
    (folder,) = store.iterdir()
    rejected, report = sorted((folder / "published").iterdir())
    assert (rejected.name[:9], report.name[:7]) == ("rejected-", "report-")
    assert "## `nested/deeper/[red]third[#red].rst`" in report.read_text(encoding="utf-8")
    await _see_claims_that_are_not_true(part, folder)


async def _see_claims_that_are_not_true(part: Part, folder: Path) -> None:
    """Change what the log or the memory says, and look which claims notice."""
    claims, ticks = part("claims"), part("ticks")
    log = ticks.TickLog(folder / "ticks.jsonl").read()
    checkpoint = await FileCheckpointStorage(folder / "checkpoints").load("review")
    (paused,) = [one for one in checkpoint.snapshots if one.boundary == "paused"]
    checkpoint.restart_from(paused.snapshot_id)
    first, second = list(dict.fromkeys(tick.process for tick in log))[:2]
    snapshots = tuple(checkpoint.snapshots[:4])
    kill = claims.Kill(-9, first, ("broken.md", "first.md"), snapshots, ("[empty]_*.md", "binary.md"))

    def broken(log: list[object], kill: object = kill) -> list[int]:
        calls = [ticks.calls_of(log, process) for process in (first, second)]
        found = claims.rows(kill, checkpoint, *calls)
        told = claims.after_the_kill(kill, log) + claims.after_the_resume(kill, checkpoint, found, log, NAMES)
        return [number for number, claim in enumerate(told) if not claim.holds]

    assert broken(log) == []
    # The second process did something again that was complete, at its beginning.
    where = next(index for index, tick in enumerate(log) if tick.process == second)
    again = ticks.Tick(second, log[0].executor, log[0].call)
    assert 5 in broken([*log[:where], again, *log[where:]])
    # It examined a document again that was in storage.
    assert broken([*log, ticks.Tick(second, "reviewer-1", "key", "binary.md")]) == [7]
    # It had other keys.
    other = [
        ticks.Tick(t.process, t.executor, t.call[::-1], t.document) if t.process == second else t for t in log
    ]
    assert broken(other) == [5]
    # The first process ended by itself; the storage held something of the superstep in flight.
    assert broken(log, claims.Kill(0, first, kill.batch, snapshots, kill.saved)) == [0]
    assert 2 in broken(log, claims.Kill(-9, first, kill.batch, snapshots, (*kill.saved, "broken.md")))


def test_r58_the_play_is_performed_with_a_model(odd_documents: Path, tmp_path: Path) -> None:
    """Any server that is compatible with OpenAI's; the documents go there, and the key goes nowhere else."""
    store = tmp_path / "store"
    with openai_server() as server:
        server.script["tiny"] = lambda asked: (
            f"A model read {len(asked.said[-1][1])} letters.\n\nTwo\x1b.\n3\n4"
        )
        played = perform(
            "--docs", odd_documents, "--store", store, "--batch", "2", "--yes",
            DEMO_MODEL="tiny", OPENAI_BASE_URL=server.url, OPENAI_API_KEY="sk-the-key",
        )  # fmt: skip
    assert played.returncode == 0, played.stdout + played.stderr
    assert f"an agent on tiny at {server.url} summarises them" in played.stdout
    assert "16 of 16 claims are true" in played.stdout
    (report,) = store.glob("*/published/report-*.md")
    letters = len((odd_documents / "first.md").read_text())
    assert f"- A model read {letters} letters.\n- Two.\n- 3\n\n" in report.read_text(encoding="utf-8")
    assert {(asked.model, asked.key, asked.said[0][0]) for asked in server.asked} == {
        ("tiny", "sk-the-key", "system")
    }
    # Of the eight documents five have a text, and of those of the superstep in flight one may be asked about twice.
    assert len({asked.said[-1][1] for asked in server.asked}) == 5
    assert not any(b"sk-the-key" in file.read_bytes() for file in store.rglob("*") if file.is_file())


def test_r60_a_model_that_fails_ends_the_play_and_nothing_that_was_committed_is_lost(
    odd_documents: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    with openai_server() as server:
        server.script["tiny"] = lambda asked: "Said."
        server.faults.extend([None, 500])
        reached = {"DEMO_MODEL": "tiny", "OPENAI_BASE_URL": server.url}
        played = perform("--docs", odd_documents, "--store", store, "--batch", "8", "--yes", **reached)
        assert played.returncode == 1
        assert "the worker ended before it could be killed" in played.stdout
        assert "told to fail" in played.stdout
        (folder,) = store.iterdir()
        assert "to go on from there:" in played.stdout and str(folder) in played.stdout
        resumed = subprocess.run(
            [sys.executable, EXAMPLE / "worker.py", folder, "resume"],
            capture_output=True, encoding="utf-8", check=False, env={**os.environ, **reached},
        )  # fmt: skip
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert '"event":"question"' in resumed.stdout


@pytest.mark.parametrize("known", [{}, {"OPENAI_BASE_URL": "", "OPENAI_API_KEY": ""}])
def test_a_model_that_cannot_be_asked_is_told_before_anything_begins(
    part: Part, odd_documents: Path, known: dict[str, str]
) -> None:
    module = part("summariser")
    with pytest.raises(module.MissingError, match="neither OPENAI_BASE_URL nor OPENAI_API_KEY"):
        module.summariser({"DEMO_MODEL": "tiny", **known})
    # A key alone sends nobody's documents anywhere.
    assert module.summariser({"OPENAI_API_KEY": "sk"}).client.__class__.__name__ == "ScriptedChatClient"


def test_a_play_whose_model_cannot_be_asked_does_not_begin(odd_documents: Path, tmp_path: Path) -> None:
    nowhere = {"OPENAI_BASE_URL": "", "OPENAI_API_KEY": ""}
    played = perform(
        "--docs", odd_documents, "--store", tmp_path / "s", "--yes", DEMO_MODEL="tiny", **nowhere
    )
    assert (played.returncode, played.stderr) == (2, "")
    assert "The model cannot be asked: DEMO_MODEL is set" in played.stdout
    assert not (tmp_path / "s").exists()


def test_one_document_is_enough(tmp_path: Path, write_file: Callable[[str, str], Path]) -> None:
    document = write_file("docs/only.md", "# Only\n\nThe only document here.\n")
    played = perform("--docs", document, "--store", tmp_path / "store", "--yes")
    assert played.returncode == 0, played.stdout + played.stderr
    assert "1 document under " in played.stdout
    assert "killed in batch 1 of 1" in played.stdout
    assert "of 1 document none was done" in played.stdout
    assert "✓ 1 document examined, none of them twice" in played.stdout


def test_a_secret_outside_of_the_folder_is_not_published(
    tmp_path: Path, write_file: Callable[[str, str], Path]
) -> None:
    """The folder is given as a person gives it to make: with a `~` that no shell has read."""
    secret = write_file("secret.md", "# The secret\n\nNobody may publish this sentence.\n")
    write_file("docs/open.md", "# Open\n\nAnybody may publish this sentence.\n")
    write_file("docs/picture.png", "no document")
    write_file("docs/data.json", "{}")
    (tmp_path / "docs" / "out.md").symlink_to(secret)
    played = perform("--docs", "~/docs", "--store", "~/store", "--yes", home=tmp_path)
    assert played.returncode == 0, played.stdout + played.stderr
    assert f"2 documents, 2 other files left out, under {tmp_path / 'docs'}\n" in played.stdout
    assert "out.md: leads out of the folder" in played.stdout
    (report,) = (tmp_path / "store").glob("*/published/report-*.md")
    text = report.read_text(encoding="utf-8")
    assert "Anybody may publish" in text
    assert "Nobody may publish" not in text


def test_a_folder_without_documents_is_told(tmp_path: Path, write_file: Callable[[str, str], Path]) -> None:
    write_file("docs/picture.png", "no document")
    played = perform("--docs", tmp_path / "docs", "--store", tmp_path / "store", "--yes")
    assert (played.returncode, played.stderr) == (2, "")
    assert "There are no documents in" in played.stdout
    assert not (tmp_path / "store").exists()


def test_a_folder_that_does_not_exist_is_told(tmp_path: Path) -> None:
    played = perform("--docs", tmp_path / "none", "--yes")
    assert (played.returncode, played.stderr) == (2, "")
    assert "No such file or directory" in played.stdout


def test_without_a_person_it_says_what_to_do(odd_documents: Path) -> None:
    played = perform("--docs", odd_documents)
    assert (played.returncode, played.stderr) == (2, "")
    assert "make demo ARGS=--yes" in played.stdout


def test_the_documents_are_looked_at_before_the_terminal(
    tmp_path: Path, write_file: Callable[[str, str], Path]
) -> None:
    played = perform("--docs", tmp_path / "none")
    assert (played.returncode, played.stderr) == (2, "")
    assert "No such file or directory" in played.stdout
    assert "no terminal" not in played.stdout
    write_file("docs/picture.png", "no document")
    assert "There are no documents in" in perform("--docs", tmp_path / "docs").stdout


async def test_r54_a_worker_goes_on_to_the_question_when_its_parent_is_gone(
    odd_documents: Path, tmp_path: Path
) -> None:
    """The gate at which a worker waits to be killed opens when nobody is there to kill it."""
    command = [
        sys.executable,
        EXAMPLE / "worker.py",
        "--gate",
        "1",
        tmp_path,
        "start",
        "--docs",
        odd_documents,
    ]
    ended = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert '{"event":"gate","batch":1,' in ended.stdout
    checkpoint = await FileCheckpointStorage(tmp_path / "checkpoints").load("review")
    (request,) = checkpoint.pending_requests
    assert checkpoint.status == "idle_with_pending_requests"
    assert f'{{"event":"question","request":"{request.request_id}"}}' in ended.stdout
    assert request.plain_data["v"]["documents"] == len(NAMES)


def test_the_walk_through_quotes_the_code_as_it_is() -> None:
    page = (ROOT / "docs" / "tutorials" / "document-review.md").read_text(encoding="utf-8")
    sources = [path.read_text(encoding="utf-8") for path in sorted(EXAMPLE.glob("*.py"))]
    blocks = re.findall(r"^```text\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    quoted = [block for block in blocks if re.search(r"\b(class|await|return|workflow\.run)\b", block)]
    assert len(quoted) == 7
    for block in quoted:
        assert any(block in source for source in sources), block
    named = set(re.findall(r"^\| `(\w+\.py)` \|", page, re.MULTILINE))
    assert named == {path.name for path in EXAMPLE.glob("*.py")} - {"__main__.py", "counting.py"}
