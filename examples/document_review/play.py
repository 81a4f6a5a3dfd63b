"""The play, in five acts: killed, resumed, asked, answered otherwise, and looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
from child import Child
from claims import Claim, Kill, after_the_kill, after_the_resume, rows, saved_reviews
from documents import Found
from place import CHECKPOINT_ID, Place
from terminal import Bars, Terminal, question_lines
from ticks import calls_of, documents_of

from branchpoint import Checkpoint, CheckpointSnapshot

__all__ = ["Play", "PlayError"]


class PlayError(Exception):
    """The play cannot go on; the text says why and where to look."""


class Play:
    """One performance over one set of documents, in one place.

    This process never runs the workflow and knows none of its types. It starts workers, kills one,
    and reads the checkpoint from storage.
    """

    def __init__(
        self,
        terminal: Terminal,
        place: Place,
        found: Found,
        places: Sequence[Path],
        *,
        batch_size: int,
        pace: float,
        unattended: bool,
    ) -> None:
        self._terminal = terminal
        self._place = place
        self._documents = found.documents
        self._places = places
        self._batch_size = batch_size
        self._batches = -(-len(found.documents) // batch_size)
        self._pace = pace
        self._unattended = unattended
        self._claims: list[Claim] = []
        self._notes: dict[str, str] = {}

    def perform(self) -> bool:
        """Perform all acts; returns whether every claim was true.

        Raises:
            PlayError: A worker failed, or the person who was asked went away.
        """
        kill = self._killed()
        self._resumed(kill)
        pause, approved, first_worker = self._asked()
        self._answered_otherwise(pause, not approved, first_worker)
        self._looked_at()
        return all(claim.holds for claim in self._claims)

    # The acts.

    def _killed(self) -> Kill:
        batch = (self._batches + 1) // 2
        documents = self._documents[(batch - 1) * self._batch_size : batch * self._batch_size]
        self._terminal.heading(f"1  A process reviews, and is killed in batch {batch} of {self._batches}")
        arguments = ["start", "--batch", str(self._batch_size), "--docs", *map(str, self._places)]
        with self._worker(arguments, gate=batch) as worker:
            with self._bars(done=0) as bars:
                waiting_for = set(documents)
                for told in worker.told():
                    self._show(bars, told)
                    if told["event"] == "reviewed":
                        waiting_for.discard(told["document"])
                    elif told["event"] == "gate":
                        bars.in_the_middle_of(told["document"])
                        waiting_for.discard(told["document"])
                    if not waiting_for:
                        break
                else:
                    raise self._failed("the worker ended before it could be killed", worker)
            self._terminal.say(f"$ kill -9 {worker.pid}", style="bold red")
            worker.kill()
            exit_code = worker.wait()
        checkpoint = self._checkpoint()
        snapshots = tuple(checkpoint.snapshots)
        kill = Kill(exit_code, worker.pid, documents, snapshots, tuple(saved_reviews(snapshots[-1])))
        self._notes[kill.head.snapshot_id] = "killed after this, resumed from here"
        self._check(after_the_kill(kill, self._place.ticks.read()))
        return kill

    def _resumed(self, kill: Kill) -> None:
        self._terminal.heading("2  Another process goes on from the checkpoint")
        with self._worker(["resume"]) as worker:
            with self._bars(done=len(kill.saved)) as bars:
                for told in worker.told():
                    self._show(bars, told)
            self._expect_success(worker)
        checkpoint = self._checkpoint()
        ticks = self._place.ticks.read()
        table = rows(kill, checkpoint, calls_of(ticks, kill.process), calls_of(ticks, worker.pid))
        self._terminal.supersteps(table)
        self._check(after_the_resume(kill, checkpoint, table, ticks, self._documents))

    def _asked(self) -> tuple[CheckpointSnapshot, bool, Child]:
        self._terminal.heading("3  The run has paused; nothing is running, the question is in storage")
        checkpoint = self._checkpoint()
        pause = checkpoint.head_snapshot
        assert pause is not None
        self._notes[pause.snapshot_id] = "the question"
        (request,) = checkpoint.pending_requests
        lines = question_lines(request.plain_data["v"])
        if self._unattended:
            self._terminal.show("May the report be published?", lines)
            self._terminal.say("--yes answers: yes")
            approved = True
        else:
            try:
                approved = self._terminal.ask("The report is ready", lines, "May it be published?")
            except EOFError:
                later = self._place.command("answer", request.request_id, "yes")
                raise PlayError(f"Nobody answered. The question waits; answer it later by\n{later}") from None
        worker, outcome = self._answer(request.request_id, approved)
        self._check(
            [
                Claim("the run was paused on one question", pause.status == "idle_with_pending_requests"),
                self._outcome_claim(outcome, approved),
            ]
        )
        self._name_branch(pause, f"answered {_word(approved)}")
        self._show_outcome(outcome)
        return pause, approved, worker

    def _answered_otherwise(self, pause: CheckpointSnapshot, approved: bool, first: Child) -> None:
        self._terminal.heading(f"4  Back to the question: what if the answer were {_word(approved)}?")
        before = self._checkpoint()
        end = before.head_snapshot
        assert end is not None
        files = self._place.reports()
        (request_id,) = pause.manifest.requests
        worker, outcome = self._answer(request_id, approved, at=pause.snapshot_id)
        self._name_branch(pause, f"answered {_word(approved)}")
        after = self._checkpoint()
        ticks = self._place.ticks.read()
        first_calls, calls = calls_of(ticks, first.pid), calls_of(ticks, worker.pid)
        branches = [one for one in after.snapshots if one.parent_snapshot_id == pause.snapshot_id]
        self._check(
            [
                self._outcome_claim(outcome, approved),
                Claim(
                    "both answers are children of one snapshot, and the head is the end of the second branch",
                    len(branches) == 2
                    and branches[1] in after.ancestors()
                    and branches[0] not in after.ancestors(),
                ),
                Claim(
                    "the first branch is untouched, and so is what it published",
                    after.get_snapshot(end.snapshot_id).root == end.root
                    and files.items() <= self._place.reports().items(),
                ),
                Claim(
                    "no document was examined again for it",
                    not documents_of(ticks, first.pid) and not documents_of(ticks, worker.pid),
                ),
                Claim(
                    "calls on the two branches have different idempotency keys",
                    len(calls) == len(first_calls) == len({call.call for call in [*first_calls, *calls]}) / 2,
                ),
            ]
        )
        self._show_outcome(outcome)

    def _looked_at(self) -> None:
        self._terminal.heading("5  What is in storage")
        checkpoint = self._checkpoint()
        self._terminal.tree(checkpoint, self._notes)
        stored = self._place.bytes_stored()
        whole = sum(len(msgspec.json.encode(one.plain_state())) for one in checkpoint.snapshots)
        self._terminal.say(
            f"{len(checkpoint.snapshots)} snapshots, each complete: {stored:,} bytes on the disk"
        )
        times = f", {whole / stored:.1f} times as many" if whole > stored else ""
        self._terminal.say(f"as whole copies they would take {whole:,} bytes{times}")
        true = sum(claim.holds for claim in self._claims)
        self._terminal.say("")
        self._terminal.say(
            f"{true} of {len(self._claims)} claims are true",
            style="bold green" if true == len(self._claims) else "bold red",
        )
        self._terminal.say(f"everything is in {self._place.folder}")

    # What they have in common.

    def _worker(self, arguments: Sequence[str], *, gate: int | None = None) -> Child:
        return Child(self._place, arguments, pace=self._pace, gate=gate)

    def _bars(self, done: int) -> AbstractContextManager[Bars]:
        return self._terminal.bars(
            documents=len(self._documents), batches=self._batches, done=done, saved=done // self._batch_size
        )

    def _show(self, bars: Bars, told: dict[str, Any]) -> None:
        if told["event"] == "reviewed":
            bars.examined(told["document"], told["problem"])
        elif told["event"] == "superstep":
            # The planner's supersteps and the reviewers' take turns, and the planner begins.
            bars.saved(min(told["superstep"] // 2, self._batches))

    def _answer(
        self, request_id: str, approved: bool, *, at: str | None = None
    ) -> tuple[Child, dict[str, Any]]:
        """Let a new process answer, and return what the run produced."""
        rest = [] if at is None else ["--at", at]
        with self._worker(["answer", *rest, request_id, _word(approved)]) as worker:
            produced = [told for told in worker.told() if told["event"] == "output"]
            self._expect_success(worker)
        if len(produced) != 1:
            raise self._failed(f"the run gave {len(produced)} outputs in place of one", worker)
        return worker, produced[0]

    def _outcome_claim(self, outcome: dict[str, Any], approved: bool) -> Claim:
        published = self._place.reports()
        kind = "report" if approved else "rejected"
        text = published.get(outcome["file"], "")
        of_its_kind = [name for name in published if name.startswith(kind)]
        return Claim(
            f"a new process took the answer {_word(approved)!r} and wrote {outcome['file']}, once and whole",
            outcome["kind"] == kind
            and len(of_its_kind) == 1
            and bool(text)
            and (not approved or all(name in text for name in self._documents)),
        )

    def _show_outcome(self, outcome: dict[str, Any]) -> None:
        lines = self._place.reports().get(outcome["file"], "").splitlines()
        more = [f"… {len(lines) - 12} more lines"] if len(lines) > 12 else []
        self._terminal.show(outcome["file"], [*lines[:12], *more])

    def _name_branch(self, pause: CheckpointSnapshot, name: str) -> None:
        newest = [one for one in self._checkpoint().snapshots if one.parent_snapshot_id == pause.snapshot_id][
            -1
        ]
        self._notes[newest.snapshot_id] = name

    def _checkpoint(self) -> Checkpoint:
        return asyncio.run(self._place.storage.load(CHECKPOINT_ID))

    def _check(self, claims: Sequence[Claim]) -> None:
        self._terminal.claims(claims)
        self._claims.extend(claims)

    def _expect_success(self, worker: Child) -> None:
        if worker.wait() != 0:
            raise self._failed("a worker failed", worker)

    def _failed(self, what: str, worker: Child) -> PlayError:
        said = self._place.errors.read_text(encoding="utf-8", errors="replace").strip()
        return PlayError(
            f"{what} (process {worker.pid}; its place is {self._place.folder})\n{said or 'it said nothing'}\n"
            f"What was committed is kept; to go on from there:\n{self._place.command('resume')}"
        )


def _word(approved: bool) -> str:
    return "yes" if approved else "no"
