"""The workflow that is killed everywhere: two tasks on one line of a small repository. The first fails its checks once
and is sent back by its reviewer once; the second conflicts with the first, and is put together with it; two things must
be approved; a branch is handed over."""

from typing import Final

from tests.support.foreman_setup import CALC, MENDED, writes

BRANCH: Final = "longshore/story"
ONE, TWO = "one", "two"
CATEGORIES: Final = ("merge", "dependency")
BOTH: Final = CALC.replace("return a - b", "return a + b  # the sum")
NEEDS: Final = "leftpad==1\n"

_PLAN: Final = f"""
- play:
  - tool: submit_plan
    with:
      summary: Mend add, and say what it does.
      tasks:
        - {{key: {ONE}, title: Mend add, goal: add adds, acceptance: [it adds]}}
        - {{key: {TWO}, title: Say what it is, goal: add says what it does, acceptance: [it does]}}
  - answer: The plan is handed in.
"""
_WRONG, _SAYS = CALC.replace("a - b", "a * b"), CALC.replace("return a - b", "return b + a  # the sum")
_SEND_BACK: Final = """
- when: 'Task: Mend add'
  play:
  - tool: submit_review
    with:
      verdict: request_changes
      summary: It needs something.
      findings: [{severity: blocking, title: A need is missing, detail: Name what is needed.}]
  - answer: Sent back.
"""
_APPROVE: Final = """
- play:
  - tool: submit_review
    with: {verdict: approve, summary: It is good., findings: []}
  - answer: Approved.
"""


def _when(words: str, script: str) -> str:
    return script.replace("- play:", f"- when: {words}\n  play:", 1)


# By provider.
SCRIPTS: Final = {
    "judge": _PLAN,
    "smith": (
        _when("A reviewer asks", writes("requirements.txt", NEEDS))
        + _when("unittest` failed", writes("calc.py", MENDED))
        + writes("calc.py", _WRONG)
    ),
    "other": _when("conflict markers", writes("calc.py", BOTH)) + writes("calc.py", _SAYS),
    "critic": _when("What you found before", _APPROVE) + _SEND_BACK + _APPROVE,
}
_REVIEWS: Final = r"'Review this change"
# All parts for one provider, told apart by what is asked.
ALL_PARTS: Final = (
    _when("^Plan how", _PLAN)
    + _when(_REVIEWS + r"[\s\S]*What you found before'", _APPROVE)
    + _SEND_BACK.replace("'Task:", _REVIEWS + r"[\s\S]*Task:")
    + _when(_REVIEWS + "'", _APPROVE)
    + _when("conflict markers", writes("calc.py", BOTH))
    + _when("A reviewer asks", writes("requirements.txt", NEEDS))
    + _when("unittest` failed", writes("calc.py", MENDED))
    + _when("'Task: Mend add'", writes("calc.py", _WRONG))
    + writes("calc.py", _SAYS)
)
# What stages there are, with the verdict each comes to: kind, task, round, ok.
STAGES: Final = frozenset(
    {
        ("prepare", "", 0, True), ("plan", "", 0, True),
        ("build", ONE, 0, True), ("check", ONE, 0, False),
        ("fix", ONE, 1, True), ("check", ONE, 1, True), ("review", ONE, 1, False),
        ("fix", ONE, 2, True), ("check", ONE, 2, True), ("review", ONE, 2, True),
        ("build", TWO, 0, True), ("check", TWO, 0, True), ("review", TWO, 0, True),
        ("merge", "", 0, False),
        ("fix", TWO, 1, True), ("check", TWO, 1, True), ("review", TWO, 1, True),
        ("merge", "", 1, True), ("publish", "", 1, True),
    }
)  # fmt: skip
