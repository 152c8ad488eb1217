"""Our own providers as candidates for a role, as if all were set up and somebody worked for each."""

from adapters.model_port import AnyProvider
from adapters.providers.anthropic import AnthropicProvider
from adapters.providers.cli.claude import ClaudeCodeProvider
from adapters.providers.cli.codex import CodexProvider
from adapters.providers.cli.gemini import GeminiProvider
from adapters.providers.cli.opencode import OpencodeProvider
from adapters.providers.omnara import OmnaraProvider
from adapters.providers.openai import OpenAIProvider
from adapters.providers.scripted import ScriptedProvider
from workers.workflows.candidates import Candidate


def of(provider: AnyProvider, workers: int = 1) -> Candidate:
    """With what it says of itself."""
    said = provider.manifest
    return Candidate(said.adapter_id, said.kind, said.vendor, said.capabilities, workers=workers)


CLAUDE, CODEX, GEMINI = of(ClaudeCodeProvider()), of(CodexProvider()), of(GeminiProvider())
ANTHROPIC, OPENAI, OPENCODE = of(AnthropicProvider()), of(OpenAIProvider()), of(OpencodeProvider())
OMNARA, SCRIPTED = of(OmnaraProvider()), of(ScriptedProvider())
