"""Reading scripts: every act, and a clear sentence for every mistake."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import ErrorClass, ScriptError
from adapters.events import UsageReport
from adapters.providers import script
from adapters.providers.script import Act, choose_scene, parse_script


def _acts(*lines: str) -> tuple[Act, ...]:
    [scene] = parse_script("\n".join(["- play:", *(f"    {line}" for line in lines)]))
    return scene.play


ACTS: dict[str, Act] = {
    "- say: hello": script.Say(say="hello"),
    "- answer: bye": script.Answer(answer="bye"),
    "- think: hm": script.Think(think="hm"),
    "- progress: half": script.Report(progress="half"),
    "- tool: clock": script.UseTool(tool="clock"),
    "- {tool: clock, with: {timezone: UTC}}": script.UseTool(tool="clock", arguments={"timezone": "UTC"}),
    "- wait: 0.5": script.Wait(wait=0.5),
    "- listen: 3": script.Listen(listen=3),
    "- touch: notes.txt": script.Touch(touch="notes.txt"),
    "- usage: {model: m, input_tokens: 5}": script.Spend(usage=UsageReport(model="m", input_tokens=5)),
    "- fail: {}": script.Fail(fail=script.Failure()),
    "- {fail: {class: quota, message: none left, retry_after: 2}, until_attempt: 3}": script.Fail(
        fail=script.Failure(error_class=ErrorClass.QUOTA, message="none left", retry_after=2), until_attempt=3
    ),
    "- crash: true": script.Crash(crash=True),
    "- {crash: true, until_attempt: 2}": script.Crash(crash=True, until_attempt=2),
    "- hang: true": script.Hang(hang=True),
    "- approval: {category: deploy, summary: ship it, risk: high}": script.AskApproval(
        approval=script.Approval(category="deploy", summary="ship it", risk="high")
    ),
}


@pytest.mark.spec("P11")
@pytest.mark.parametrize("source", ACTS)
def test_an_act_is_read(source: str) -> None:
    assert _acts(source) == (ACTS[source],)


@pytest.mark.spec("P11")
def test_acts_keep_their_order() -> None:
    assert _acts(*ACTS) == tuple(ACTS.values())


@pytest.mark.spec("P11")
def test_the_table_above_has_every_act() -> None:
    assert {type(act) for act in ACTS.values()} == set(Act.__args__)


@pytest.mark.spec("P11")
@pytest.mark.parametrize(
    "text", ["hello", "", "- a list\n- of things", "play: nothing", "{braces}", "- playing: x", "# only a comment"]
)
def test_a_plain_text_is_the_answer(text: str) -> None:
    [scene] = parse_script(text)
    assert scene.play == (script.Answer(answer=text),)
    assert scene.when is None


@pytest.mark.spec("P11")
@given(st.text(st.characters(exclude_characters="\n\r\t -#", exclude_categories=["Zs", "Zl", "Zp", "Cc", "Cs"])))
def test_what_people_write_is_never_read_as_scenes(text: str) -> None:
    [scene] = parse_script(text)
    assert scene.play == (script.Answer(answer=text),)


@pytest.mark.spec("P11")
def test_comments_may_stand_before_the_first_scene() -> None:
    [scene] = parse_script("# a demo\n\n  # indented\n- when: tea\n  play:\n  - answer: x\n")
    assert scene.when == "tea"


@pytest.mark.spec("P11")
def test_the_first_scene_that_fits_is_played() -> None:
    scenes = parse_script(
        "- when: '^tea'\n  play: [{answer: tea}]\n- when: coffee|mokka\n  play: [{answer: coffee}]\n"
        "- play: [{answer: water}]"
    )
    chosen = [choose_scene(scenes, asked) for asked in ("TEA please", "a Mokka, not tea", "coffee", "beer\ntea")]
    assert [scenes.index(scene) for scene in chosen if scene] == [0, 1, 1, 2]
    assert choose_scene(scenes[:2], "beer") is None


MISTAKES: dict[str, str] = {
    "- play: [\n": "the script is not YAML (line 2): expected the node content, but found '<stream end>'",
    "- play:\n  - say: 'x\n": "the script is not YAML (line 3): found unexpected end of stream",
    "- when: x": "scene 1 needs a `play:` list of acts",
    "- play: hello": "scene 1 needs a `play:` list of acts",
    "- play: []\n- hello": "scene 2 needs a `play:` list of acts",
    "- play:\n  - shout: x": (
        "scene 1, act 1 ({'shout': 'x'}) is not one of: answer, approval, crash, fail, hang, listen, progress, say, "
        "think, tool, touch, usage, wait"
    ),
    "- play:\n  - say: x\n  - hello": (
        "scene 1, act 2 ('hello') is not one of: answer, approval, crash, fail, hang, listen, progress, say, "
        "think, tool, touch, usage, wait"
    ),
    "- when: '['\n  play: []": (
        "scene 1: `when: [` is not a regular expression (unterminated character set at position 0)"
    ),
    "- play: []\n- when: '*'\n  play: []": (
        "scene 2: `when: *` is not a regular expression (nothing to repeat at position 0)"
    ),
    "- when: 5\n  play: []": (
        "scene 1: `when: 5` is not a regular expression (first argument must be string or compiled pattern)"
    ),
    "- play: []\n  times: 3": "scene 1 has `times`, but only `when` and `play` mean something",
}


@pytest.mark.spec("P11")
@pytest.mark.parametrize("source", MISTAKES)
def test_a_mistake_is_named_with_its_place(source: str) -> None:
    with pytest.raises(ScriptError) as caught:
        parse_script(source)
    assert str(caught.value) == MISTAKES[source]


@pytest.mark.spec("P11")
@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "", "a b", "x\n", "..\\x"])
def test_a_script_writes_only_into_its_own_folder(name: str) -> None:
    with pytest.raises(ScriptError):
        _acts(f"- touch: {name!r}")


@pytest.mark.spec("P11")
@pytest.mark.parametrize(
    "act",
    ["- wait: -1", "- wait: soon", "- listen: 0", "- fail: {class: nope}", "- crash: false", "- hang: 5",
     "- usage: {input_tokens: many}", "- approval: {category: x}", "- {say: x, answer: y}", "- {tool: x, using: y}"],
)  # fmt: skip
def test_an_act_with_a_wrong_value_is_refused(act: str) -> None:
    with pytest.raises(ScriptError):
        _acts(act)
