"""openclaw as the tests run it: what its model is scripted to say, its keys and its options."""

from adapters.providers.cli.openclaw.provider import OpenclawProvider
from adapters.providers.conformance import EDITED_FILE
from tests.support.model_api import Call, reply, rule
from tests.support.program_checks import LINGER_COMMAND
from tests.support.programs import NO_PRICE, PRICE, Cli

OPENCLAW = Cli(
    name="openclaw",
    provider=OpenclawProvider,
    rules=(
        rule("tool", reply("Let me see.", Call("~probe$", {})), "the probe says {result}"),
        rule("edit", reply(Call("write", {"path": EDITED_FILE, "content": "written\n"})), "It is written."),
        rule("risky", reply("I will push it.", Call("exec", {"command": "git push origin main"})), "It is pushed."),
        rule("linger", reply(Call("exec", {"command": LINGER_COMMAND})), "It has ended."),
        rule("look", reply(Call("exec", {"command": "echo done"})), "The tool says: {result}"),
    ),
    keys=("OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"),
    model="gpt-6-luna",
    patience=150.0,
    options=PRICE,
    good_options={"api": "chat", **PRICE},
    bad_options={
        **NO_PRICE,
        "an option it does not have": ({"temperature": 1}, "temperature"),
        "an API nobody has": ({"api": "soap"}, "api"),
    },
)
