"""The samples in `examples`: each is run as a person would run it, in one process after the other."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.cosmos import KEY

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"

# Of a sample: what is run in a row, the exit code, and what it says.
ASKS = "May this go out? Dear customer, your bees are on their way."
REFUND = "May it? refund {'order': '7', 'euros': 20}"
GRADE = "grader asks: what grade for 'Bees are small.'?"
KEEPS = "the session keeps ['checkpoint_id', 'snapshot_id']"
DEAD = [("--crash", 1, ["writer works", "editor works"])]
PRINTED = ["-> Bees sleep too, often holding hands.", "-> Cut 'too'.", "-> Printed."]
ALIVE = ["found 2 snapshots, the last is superstep_completed", "editor works", "printer works", *PRINTED]
Step = tuple[str, int, list[str]]
STEPS: dict[str, list[Step]] = {
    "checkpoint_and_resume": [
        *DEAD,
        ("", 0, ALIVE),
        ("", 0, ["found 4 snapshots, the last is completed", *PRINTED]),
    ],
    "human_in_the_loop": [
        ("", 0, [ASKS]),
        ("--answer yes", 0, [ASKS, "sent: Dear customer, your bees are on their way."]),
    ],
    "tool_approval": [
        ("", 0, ["looking up order 7", REFUND]),
        ("--approve", 0, [REFUND, "refunding 20 euros for order 7", "The tool said: refunded"]),
        ("--approve", 0, ["The tool said: refunded"]),
    ],
    "branching_from_an_approval": [
        (
            "",
            0,
            [
                "planting a linden",
                "yes: Told: The linden stands.",
                "no: Told: Error: Tool call invocation was rejected by user.",
                "0 after -: input_accepted",
                "1 after 0: paused",
                "2 after 1: responses_accepted",
                "3 after 2: completed",
                "4 after 1: responses_accepted",
                "5 after 4: completed",
            ],
        )
    ],
    "concurrent_users": [
        ("--users 9", 0, ["You said: 0a, 0b, 0c", "9 of 9 users heard what they said, and nothing else"])
    ],
    "workflow_as_agent": [
        ("'My order 7 is broken.'", 0, ["May it? refund 7", KEEPS]),
        ("--approve", 0, ["refunding order 7", "Your money is on its way.", KEEPS]),
        ("Thanks.", 0, ["You are welcome.", KEEPS]),
    ],
    "nested_workflow": [
        ("", 0, [GRADE, "status: idle_with_pending_requests"]),
        ("--answer 3", 0, [GRADE, "registered: 'Bees are small.' got a 3", "status: idle"]),
    ],
}


def play(sample: str, steps: list[Step], folder: Path, flags: str = "") -> None:
    """Run a sample once for each step, each time in a process of its own."""
    for arguments, code, said in steps:
        done = subprocess.run(
            [
                sys.executable,
                "-W",
                "error",
                EXAMPLES / f"{sample}.py",
                *flags.split(),
                *shlex.split(arguments),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=folder,
            env={**os.environ, "COSMOS_KEY": KEY},
            timeout=100,
            check=False,
        )
        assert (done.returncode, done.stderr) == (code, ""), done.stdout + done.stderr
        assert done.stdout.splitlines() == said


@pytest.mark.parametrize("sample", STEPS)
def test_r58_a_sample_runs_and_says_what_it_is_to(sample: str, tmp_path: Path) -> None:
    play(sample, STEPS[sample], tmp_path)
    assert (tmp_path / "runs").is_dir()


def test_r58_the_other_answers_of_the_samples(tmp_path: Path) -> None:
    play("human_in_the_loop", [("", 0, [ASKS]), ("--answer no", 0, [ASKS, "thrown away"])], tmp_path)
    rejected = "The tool said: Error: Tool call invocation was rejected by user."
    play(
        "tool_approval",
        [("", 0, ["looking up order 7", REFUND]), ("--refuse", 0, [REFUND, rejected])],
        tmp_path,
    )


def test_r58_a_sample_keeps_its_checkpoint_in_postgres(postgres_dsn: str, tmp_path: Path) -> None:
    play(
        "human_in_the_loop", STEPS["human_in_the_loop"], tmp_path, f"--storage postgres --url {postgres_dsn}"
    )
    assert not list(tmp_path.iterdir())


def test_r58_a_sample_keeps_its_checkpoint_in_cosmos(cosmos_place: str, tmp_path: Path) -> None:
    endpoint, database, container = cosmos_place.split()
    flags = f"--storage cosmos --url {endpoint} --database {database} --container {container}"
    play("human_in_the_loop", STEPS["human_in_the_loop"], tmp_path, flags)
    assert not list(tmp_path.iterdir())


def test_a_server_without_an_address_is_told(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "concurrent_users.py", "--storage", "postgres"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "--storage postgres needs --url\n")


def test_every_sample_is_in_the_table_and_played() -> None:
    table = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| \[(\w+)\.py\]\(\1\.py\) \|", table, re.MULTILINE)
    samples = {path.stem for path in EXAMPLES.glob("*.py")} - {"redis_storage", "storage_flags", "functional"}
    assert len(named) == len(set(named))
    assert set(named) == samples == set(STEPS)


def test_a_sample_can_be_read_at_one_go() -> None:
    for sample in STEPS:
        text = (EXAMPLES / f"{sample}.py").read_text(encoding="utf-8")
        assert f"python examples/{sample}.py" in text.split('"""')[1]
        assert len(text.splitlines()) <= 110
