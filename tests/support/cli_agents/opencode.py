"""opencode as the tests run it: what its model is scripted to say, its keys and its options."""

from adapters.providers.cli.opencode import OpencodeProvider
from adapters.providers.conformance import EDITED_FILE
from tests.support.model_api import Call, reply, rule
from tests.support.program_checks import LINGER_COMMAND
from tests.support.programs import NO_PRICE, PRICE, Cli

PATCH = f"*** Begin Patch\n*** Add File: {EDITED_FILE}\n+written\n*** End Patch"


def shell_call(line: str) -> Call:
    return Call("bash", {"command": line, "description": "what is asked"})


OPENCODE = Cli(
    name="opencode",
    provider=OpencodeProvider,
    rules=(
        rule("tool", reply("Let me see.", Call("~probe$", {})), "the probe says {result}"),
        rule("edit", reply(Call("apply_patch", {"patchText": PATCH})), "It is written."),
        rule("risky", reply("I will push it.", shell_call("git push origin main")), "It is pushed."),
        rule("linger", reply(shell_call(LINGER_COMMAND)), "It has ended."),
        rule("Not allowed", "I see: {text}"),
        rule(
            "look around",
            reply(Call("read", {"filePath": "/workspace/notes.txt"})),
            reply(Call("read", {"filePath": "/workspace/keys/id_rsa"})),
            "I have seen it all.",
        ),
    ),
    keys=("OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"),
    model="gpt-6.1-terra",
    options=PRICE,
    good_options=PRICE,
    bad_options={"an option it does not have": ({"temperature": 1}, "temperature"), **NO_PRICE},
)
