"""claude as the tests run it: what its model is scripted to say, its keys and its options."""

from adapters.providers.cli.claude.provider import ClaudeCodeProvider
from adapters.providers.conformance import EDITED_FILE
from tests.support.model_api import Call, drip, hang, reply, rule
from tests.support.program_checks import LINGER_COMMAND
from tests.support.programs import Cli, spending

PUSH = "git push origin main"
SPENDING = spending(
    *("ANTHROPIC_API_KEY", "x-api-key", "messages"),
    model="claude-opus-5-5",
    max_tokens=100,
    messages=[{"role": "user", "content": "answer"}],
)
CLAUDE = Cli(
    name="claude",
    provider=ClaudeCodeProvider,
    rules=(
        rule("tool", reply("Let me see.", Call("~probe$", {})), "the probe says {result}"),
        rule("edit", reply(Call("Write", {"file_path": EDITED_FILE, "content": "written\n"})), "It is written."),
        rule("risky", reply("I will push it.", Call("Bash", {"command": PUSH})), "It is pushed."),
        rule(
            "hold", reply("I will push it.", Call("Bash", {"command": PUSH})), reply("It is pushed.", faults=(hang(),))
        ),
        rule("which key", reply(Call("Bash", {"command": "env | grep ANTHROPIC || echo no key"})), "{result}"),
        rule("spend", reply(Call("Bash", {"command": SPENDING})), "{result}"),
        rule("linger", reply(Call("Bash", {"command": LINGER_COMMAND})), "It has ended."),
        rule("take your time", reply("It took long.", faults=(drip(0.1, 100),))),
        rule("wait for it", reply(Call("Bash", {"command": "until test -e go; do sleep 0.1; done"})), "It is there."),
        rule(
            "look around",
            reply("I look.", Call("Bash", {"command": "cat notes.txt"})),
            reply(Call("Read", {"file_path": "/workspace/notes.txt"})),
            reply(Call("Bash", {"command": PUSH})),
            reply(Call("Agent", {"description": "d", "prompt": "help me", "subagent_type": "general-purpose"})),
            "That was all.",
        ),
        rule("help me", reply("I help.", Call("Bash", {"command": "true"})), "I have helped."),
    ),
    keys=("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", ""),
    model="claude-sonnet-5-5",
    bad_options={"an option it does not have": ({"temperature": 1}, "temperature")},
)
