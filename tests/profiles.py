"""How much a property is tried, by the hypothesis profile in force; the profiles are in `conftest.py`."""

from __future__ import annotations

import os

from hypothesis import Phase, settings

SOAKING = os.environ.get("HYPOTHESIS_PROFILE") == "soak"


# Making a failing example smaller takes minutes, and a plain run ends a test after two; a soak has the time.
_AS_IT_WAS = (Phase.explicit, Phase.reuse, Phase.generate)


def brief(max_examples: int) -> settings:
    """Settings for a property whose examples are long: so many in a plain run, the whole profile in a soak."""
    return settings() if SOAKING else settings(max_examples=max_examples, phases=_AS_IT_WAS)


def brief_machine(max_examples: int, steps: int) -> settings:
    """The same for a state machine."""
    return settings(brief(max_examples), stateful_step_count=steps) if not SOAKING else settings()
