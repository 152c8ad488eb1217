"""codex as the tests run it: what its model is scripted to say, its keys and its options."""

from adapters.providers.cli.codex.provider import CodexProvider
from tests.support.model_api import Call, reply, rule
from tests.support.program_checks import LINGER_COMMAND
from tests.support.programs import NO_PRICE, PRICE, Cli, spending

PATCH = "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: conformance.txt\n+written\n*** End Patch\nEOF\n"
SCRIPT = 'text(await tools.mcp__longshore__probe({})); text(await tools.exec_command({cmd: "git push origin main"}))'


def shell_call(line: str) -> Call:
    return Call("exec_command", {"cmd": line})


CODEX = Cli(
    name="codex",
    provider=CodexProvider,
    rules=(
        rule("tool", reply("Let me see.", Call("~probe$", {})), "the probe says {result}"),
        rule("edit", reply(shell_call(PATCH)), "It is written."),
        rule("risky", reply("I will push it.", shell_call("git push origin main")), "It is pushed."),
        rule("linger", reply(shell_call(LINGER_COMMAND)), "It has ended."),
        rule("read", reply(shell_call("cat .env")), "It is read."),
        rule("surroundings", reply(shell_call("env; true")), "{result}"),
        rule(
            "spend",
            reply(
                shell_call(
                    spending("LONGSHORE_MODEL_TOKEN", "Authorization", "responses", model="gpt-6-astra", input="answer")
                )
            ),
            "{result}",
        ),
        rule("in code", reply(Call("~__exec$", SCRIPT)), "{result}"),
    ),
    keys=("OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"),
    model="a-model-it-does-not-know",  # which gets plain tools, and not a language of its own to call them in
    options=PRICE,
    good_options={"thinking": "low", **PRICE},
    bad_options={
        **NO_PRICE,
        "an option it does not have": ({"temperature": 1}, "temperature"),
        "a way of thinking it does not know": ({"thinking": "hard"}, "thinking"),
    },
)
