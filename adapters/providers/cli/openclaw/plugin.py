"""Our plug-in for openclaw, in its own language: what happens goes out as lines of JSON on its stdout, and before a
tool runs, it asks on stdout and waits for the answer on stdin.

Without it openclaw says nothing before its end and asks nobody. It must ask for leave (`hello`) before the model may be
asked (`provider.py`), so that no version that does not load it runs tools on its own."""

import json
from typing import Final

PLUGIN_ID: Final = "longshore"
FOLDER: Final = ".longshore/plugin"
HELLO: Final = "hello"
KEY: Final = "longshore"  # a line of ours is an object with this one key

_MANIFEST: Final = {
    "id": PLUGIN_ID,
    "name": "Longshore",
    "description": "Tells the fleet what happens, and asks it before a tool runs.",
    "categories": ["other"],
    "activation": {"onStartup": True},
    "configSchema": {
        "type": "object",
        "additionalProperties": False,
        "properties": {"systemPrompt": {"type": "string"}},
    },
}
_PACKAGE: Final = {
    "name": PLUGIN_ID,
    "version": "1.0.0",
    "type": "module",
    "openclaw": {"extensions": ["./index.mjs"]},
}
_CODE: Final = """
import fs from "node:fs";

// It is registered several times in one process, maybe from several copies of this file.
const ours = (globalThis[Symbol.for("longshore")] ??= { waiting: new Map(), listens: false });
const pause = new Int32Array(new SharedArrayBuffer(4));

function say(line) {
  const bytes = Buffer.from(JSON.stringify({ longshore: line }) + "\\n");
  for (let at = 0; at < bytes.length; ) {
    try {
      at += fs.writeSync(1, bytes, at);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
      Atomics.wait(pause, 0, 0, 5); // whoever reads is behind
    }
  }
}

function listen() {
  let rest = "";
  process.stdin.setEncoding("utf8");
  process.stdin.on("data", (text) => {
    const lines = (rest + text).split("\\n");
    rest = lines.pop();
    for (const line of lines) {
      const answer = JSON.parse(line);
      ours.waiting.get(answer.id)?.(answer);
    }
  });
  process.stdin.on("end", () => process.kill(process.pid, "SIGTERM"));
  process.stdin.unref(); // listening is no reason to stay
}

async function ask(id, question) {
  const answered = new Promise((resolve) => ours.waiting.set(id, resolve));
  process.stdin.ref();
  say({ ask: id, ...question });
  const answer = await answered;
  ours.waiting.delete(id);
  if (ours.waiting.size === 0) process.stdin.unref();
  return answer;
}

export default {
  id: "longshore",
  name: "Longshore",
  register(api) {
    if (!ours.listens) {
      ours.listens = true;
      listen();
      api.runtime.events.onAgentEvent(({ stream, data }) => {
        const { result, partialResult, text, output, ...rest } = data ?? {};
        if (stream !== "command_output" && data?.phase !== "update") say({ stream, data: rest });
      });
    }
    // Asked through a hook: that this one runs means that the one for tools does.
    api.on("before_agent_run", async () => void (await ask("hello", {})), { timeoutMs: 60_000 });
    api.on(
      "before_tool_call",
      async ({ toolCallId, toolName, params }) => {
        const answer = await ask(toolCallId, { tool: toolName, params });
        return answer.word === "allow" ? undefined : { block: true, blockReason: answer.why };
      },
      { timeoutMs: 600_000 },
    );
    api.on("model_call_started", () => say({ model: "asked" }));
    api.on("model_call_ended", (event) => say({ model: event.outcome === "completed" ? "answered" : "failed" }));
    const appendSystemContext = api.pluginConfig?.systemPrompt;
    if (appendSystemContext) api.on("before_prompt_build", () => ({ appendSystemContext }));
  },
};
"""
FILES: Final = {
    f"{FOLDER}/index.mjs": _CODE,
    f"{FOLDER}/openclaw.plugin.json": json.dumps(_MANIFEST),
    f"{FOLDER}/package.json": json.dumps(_PACKAGE),
}
