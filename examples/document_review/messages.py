"""What the executors of the review say to each other, and what is saved of it.

Every type is registered under a name of its own, so that a checkpoint can still be read after a
class was moved or renamed.
"""

from __future__ import annotations

from dataclasses import dataclass

from summarise import Summary

from branchpoint import register_state_type

__all__ = ["AllReviewed", "Batch", "Decision", "Job", "Outcome", "Question", "Review", "Reviewed"]

register_state_type(Summary, type_id="review.summary")


@register_state_type("review.job")
@dataclass(frozen=True)
class Job:
    """The input: what to review."""

    root: str
    documents: tuple[str, ...]
    batch_size: int
    closed_folders: tuple[str, ...] = ()


@register_state_type("review.batch")
@dataclass(frozen=True)
class Batch:
    """Documents that are reviewed in one superstep, all at once."""

    number: int
    root: str
    documents: tuple[str, ...]


@register_state_type("review.reviewed")
@dataclass(frozen=True)
class Reviewed:
    """One reviewer's word that it is done with its part of a batch, which may be none."""

    batch: int
    documents: tuple[str, ...]


@register_state_type("review.review")
@dataclass(frozen=True)
class Review:
    """What is known of one document; without a summary, `problem` says why."""

    document: str
    summary: Summary | None
    broken_links: tuple[str, ...] = ()
    problem: str | None = None


@register_state_type("review.all_reviewed")
@dataclass(frozen=True)
class AllReviewed:
    """Nothing is left to review."""

    root: str
    closed_folders: tuple[str, ...]


@register_state_type("review.question")
@dataclass(frozen=True)
class Question:
    """What the person who approves the report gets to see."""

    root: str
    documents: int
    words: int
    minutes: int
    problems: tuple[str, ...]
    broken_links: int
    closed_folders: tuple[str, ...] = ()


@register_state_type("review.decision")
@dataclass(frozen=True)
class Decision:
    """The question with its answer."""

    question: Question
    approved: bool


@register_state_type("review.outcome")
@dataclass(frozen=True)
class Outcome:
    """The output: what was published, and in which file of the folder for it."""

    kind: str
    file: str
