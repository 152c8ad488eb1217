"""A small agent that speaks the Agent Client Protocol: a program of its own, for the driver that leads any of them.

It asks a model by OpenAI's chat protocol, uses MCP tools over HTTP, writes files, runs commands after asking, and keeps
its conversations in its home. The standard library is all it needs."""

import json
import os
import subprocess
import sys
import urllib.request
import uuid
from pathlib import Path
from typing import Any

HOME = Path(os.environ["HOME"], ".tiny")
OWN = {"write": ("edit", "path"), "bash": ("execute", "command")}


class Agent:
    def __init__(self) -> None:
        self.numbers = 0
        self.session = ""
        self.said: list[dict[str, Any]] = []
        self.mcp: dict[str, Any] = {}
        self.cancelled = False

    # --- The protocol ---

    def run(self) -> None:
        while message := self.read():
            if "method" in message and "id" in message:
                self.answer(message)

    def read(self) -> dict[str, Any]:
        line = sys.stdin.readline()
        message: dict[str, Any] = json.loads(line) if line else {}
        self.cancelled = self.cancelled or message.get("method") == "session/cancel"
        return message

    def write(self, **message: Any) -> None:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

    def answer(self, message: dict[str, Any]) -> None:
        given = message["params"]
        try:
            result = getattr(self, message["method"].replace("/", "_"))(given)
        except Exception as error:  # noqa: BLE001 - which the protocol has an answer for
            self.write(id=message["id"], error={"code": -32603, "message": f"{type(error).__name__}: {error}"})
        else:
            self.write(id=message["id"], result=result)

    def update(self, what: str, **facts: Any) -> None:
        update = {"sessionUpdate": what, **facts}
        self.write(method="session/update", params={"sessionId": self.session, "update": update})

    def initialize(self, given: dict[str, Any]) -> dict[str, Any]:
        assert given["protocolVersion"] == 1
        can = {"loadSession": True, "mcpCapabilities": {"http": True}, "promptCapabilities": {"image": True}}
        return {"protocolVersion": 1, "agentCapabilities": can, "agentInfo": {"name": "tiny", "version": "1.2.3"}}

    def session_new(self, given: dict[str, Any]) -> dict[str, Any]:
        self.session = str(uuid.uuid4())
        [self.mcp] = given["mcpServers"]
        os.chdir(given["cwd"])
        return {"sessionId": self.session}

    def session_load(self, given: dict[str, Any]) -> dict[str, Any]:
        self.said = json.loads((HOME / f"{given['sessionId']}.json").read_text())
        self.session_new(given)
        self.session = given["sessionId"]
        for one in self.said:
            kind = "user_message_chunk" if one["role"] == "user" else "agent_message_chunk"
            self.update(kind, content={"type": "text", "text": str(one.get("content"))})
        return {}

    def session_prompt(self, given: dict[str, Any]) -> dict[str, Any]:
        self.cancelled = False
        text = "\n".join(block.get("text", f"[{block['type']}]") for block in given["prompt"])
        self.said.append({"role": "user", "content": text})
        self.update("plan", entries=[{"content": "answer", "priority": "high", "status": "in_progress"}])
        self.update("of_the_future", content=1)
        while (reply := self.think()).get("tool_calls"):
            for call in reply["tool_calls"]:
                result = self.do(
                    call["id"], call["function"]["name"], json.loads(call["function"]["arguments"] or "{}")
                )
                self.said.append({"role": "tool", "tool_call_id": call["id"], "content": result})
            if self.cancelled:
                break
        HOME.mkdir(exist_ok=True)
        (HOME / f"{self.session}.json").write_text(json.dumps(self.said))
        return {"stopReason": "cancelled" if self.cancelled else "end_turn"}

    # --- Its work ---

    def think(self) -> dict[str, Any]:
        names = ["probe", *OWN]
        tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in names]
        headers = {"Authorization": f"Bearer {os.environ['TINY_KEY']}"}
        body = {"model": os.environ["TINY_MODEL"], "messages": self.said, "tools": tools}
        said = self.post(os.environ["TINY_URL"] + "/chat/completions", headers, body)
        reply: dict[str, Any] = said["choices"][0]["message"]
        self.said.append(reply)
        text = reply.get("content") or ""
        for piece in (text[:5], text[5:]):
            if piece:
                self.update("agent_message_chunk", content={"type": "text", "text": piece})
        return reply

    def do(self, number: str, name: str, given: dict[str, Any]) -> str:
        kind, main = OWN.get(name, ("other", ""))
        title = name if name in OWN else f"longshore_{name}"
        self.update("tool_call", toolCallId=number, title=title, kind=kind, status="pending", rawInput=given)
        path = os.path.abspath(given[main]) if kind == "edit" else ""
        content = [{"type": "diff", "path": path, "newText": given["content"]}] if path else []
        allowed = self.ask(toolCallId=number, title=title, kind=kind, rawInput=given, content=content)
        ok, result = False, "it was not allowed"
        if allowed and kind == "edit":
            ok, result = bool(Path(path).write_text(given["content"])), "written"
        elif allowed and kind == "execute":
            run = subprocess.run(given["command"], shell=True, capture_output=True, text=True, check=False)
            ok, result = run.returncode == 0, run.stdout
        elif allowed:
            ok, result = self.tool(name, given)
        self.update("tool_call_update", toolCallId=number, status="completed" if ok else "failed", content=content)
        return result

    def ask(self, **call: Any) -> bool:
        self.numbers += 1
        number = f"ask-{self.numbers}"
        options = [{"optionId": kind, "name": kind, "kind": kind} for kind in ("allow_once", "reject_once")]
        self.write(
            id=number, method="session/request_permission",
            params={"sessionId": self.session, "toolCall": call, "options": options},
        )  # fmt: skip
        while (message := self.read()).get("id") != number:
            assert message, "nobody is there any more"
        return bool(message["result"]["outcome"].get("optionId") == "allow_once")

    def tool(self, name: str, given: dict[str, Any]) -> tuple[bool, str]:
        headers = {one["name"]: one["value"] for one in self.mcp["headers"]}
        headers["Accept"] = "application/json, text/event-stream"
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "tiny", "version": "1"}}
        self.post(self.mcp["url"], headers, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about})
        called = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": name, "arguments": given}}
        result = self.post(self.mcp["url"], headers, called)["result"]
        return not result.get("isError"), str(result["content"][0]["text"])

    def post(self, url: str, headers: dict[str, str], body: dict[str, Any]) -> Any:
        asked = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json", **headers})
        with urllib.request.urlopen(asked) as answer:
            said = answer.read().decode()
        lines = [line.removeprefix("data:") for line in said.splitlines() if line.startswith("data:")]
        return json.loads(lines[-1] if lines else said)


if __name__ == "__main__":
    Agent().run()
