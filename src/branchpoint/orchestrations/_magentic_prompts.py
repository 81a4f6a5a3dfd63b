"""What the manager of a Magentic orchestration asks its agent, where a caller says nothing else."""

from __future__ import annotations

from typing import Final

__all__ = ["FACTS", "FACTS_UPDATE", "FINAL_ANSWER", "FULL", "PLAN", "PLAN_UPDATE", "PROGRESS"]

FACTS: Final = """Here is a task:

{task}

Do not work on it yet. First write down what it rests on, under these four headings and no others:

1. GIVEN: facts and figures that the task itself states.
2. TO LOOK UP: what has to be found, and where to look for it.
3. TO WORK OUT: what has to be computed or concluded from the rest.
4. GUESSES: what you remember or suppose, marked as such.

Be specific: names, dates, numbers. Leave a heading empty rather than fill it with generalities.
"""

PLAN: Final = """These are the members of the team that works on it:

{team}

Write a short plan as a list: who does what, in which order. Not every member needs to take part.
"""

FULL: Final = """The task:

{task}

The team:

{team}

What is known:

{facts}

The plan:

{plan}
"""

FACTS_UPDATE: Final = """The work on this task has come to a halt:

{task}

Write the list of facts again, with the same headings. Move to GIVEN what turned out to be true, correct what
was wrong, and add at least one better founded guess. This is the list so far:

{old_facts}
"""

PLAN_UPDATE: Final = """Say in a sentence or two why the last plan led nowhere. Then write a new one that avoids it,
as a list of who does what, for the same team:

{team}
"""

PROGRESS: Final = """The task is still this one:

{task}

The team:

{team}

Judge where it stands, and what comes next. Answer with one JSON object of exactly this shape, and with nothing else:

{{
  "is_request_satisfied": {{"reason": "...", "answer": true or false}},
  "is_in_loop": {{"reason": "...", "answer": true or false}},
  "is_progress_being_made": {{"reason": "...", "answer": true or false}},
  "next_speaker": {{"reason": "...", "answer": "one of: {names}"}},
  "instruction_or_question": {{"reason": "...", "answer": "what you say to the next speaker"}}
}}

is_request_satisfied: the task is done completely, not just begun.
is_in_loop: the same requests or answers come again and again.
is_progress_being_made: the last messages brought something new that is of use.
"""

FINAL_ANSWER: Final = """This task is done:

{task}

The messages above are the work on it. Write the answer for the person who set the task, and speak to them directly.
"""
