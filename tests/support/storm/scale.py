"""How big a storm is, and the same plan of messages for each size."""

import random
from dataclasses import dataclass

from tests.support.storm.ledger import Place, Planned

PLAIN, NOTING = "plain", "noting"

# Answers name the messages they answer. A poisonous batch fails as a whole, until its messages travel alone.
_POISON = """
- when: poison
  play:
    - wait: 0.05
    - fail: {message: "the script chokes on this", class: internal}
"""
SCRIPTS = {
    PLAIN: _POISON
    + """
- play:
    - wait: 0.15
    - tool: clock
      with: {timezone: UTC}
    - wait: 0.15
    - answer: "answered: {texts}"
""",
    NOTING: _POISON
    + """
- play:
    - wait: 0.1
    - tool: send_message
      with: {text: "note: {texts}"}
    - wait: 0.3
    - tool: clock
      with: {timezone: UTC}
    - answer: "answered: {texts}"
""",
}


@dataclass(frozen=True)
class Scale:
    messages: int
    sessions: int
    poison: int
    agents: int
    deliverers: int
    kills: int  # by SIGKILL, spread over the storm
    deploys: int  # by SIGTERM: the worker hands its turns over
    freezes: int  # by SIGSTOP past the lease, of agents and deliverers in turn
    storm_seconds: float
    drain_seconds: float
    seed: int = 20261115

    @property
    def timeout(self) -> float:
        return self.storm_seconds * 3 + self.drain_seconds + 120


SHORT = Scale(
    messages=120, sessions=8, poison=2, agents=2, deliverers=2, kills=5, deploys=1, freezes=1,
    storm_seconds=16, drain_seconds=60,
)  # fmt: skip
MIDDLE = Scale(
    messages=340, sessions=12, poison=3, agents=3, deliverers=2, kills=10, deploys=1, freezes=2,
    storm_seconds=40, drain_seconds=60,
)  # fmt: skip
FULL = Scale(
    messages=2000, sessions=50, poison=12, agents=3, deliverers=2, kills=25, deploys=4, freezes=6,
    storm_seconds=300, drain_seconds=400,
)  # fmt: skip


def plan_messages(scale: Scale) -> list[Planned]:
    """Every second message comes by the other way, every fifteenth comes twice, a few are poison."""
    rng = random.Random(scale.seed)
    places = [
        Place(NOTING if number % 3 == 0 else PLAIN, f"ledger{number % 2}", f"thread{number:02}")
        for number in range(scale.sessions)
    ]
    # Among the first: a poisonous message needs the whole length of its retries.
    poison = set(rng.sample(range(scale.messages // 10, scale.messages // 2), scale.poison))
    return [
        Planned(
            word=f"m{number:04}",
            place=places[number] if number < len(places) else rng.choice(places),
            via="accept" if rng.random() < 0.5 else "celery",
            twice=number % 15 == 0,
            poison=number in poison,
        )
        for number in range(scale.messages)
    ]
