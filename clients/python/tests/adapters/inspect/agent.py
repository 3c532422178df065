"""A scripted agent, which runs in a sandbox and reaches its model by the proxy of inspect's bridge."""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import Any

PROXY = "http://localhost:13131"


def post(path: str, body: Any) -> Any:
    """Return what the proxy answers. As real agents do, try again until it listens."""
    request = urllib.request.Request(PROXY + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    deadline = time.monotonic() + 20
    while True:
        try:
            with urllib.request.urlopen(request) as response:
                return json.load(response)
        except urllib.error.URLError as e:
            if isinstance(e, urllib.error.HTTPError) or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def host(method: str, **params: Any) -> Any:
    """Return the result of a method of the host's MCP server."""
    return post("/mcp/host", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})["result"]


def run(name: str, arguments: Any) -> str:
    """Run a tool: a command here, or a tool of the host."""
    if name == "shell":
        return subprocess.run(arguments["command"], shell=True, capture_output=True, text=True, check=True).stdout
    name = name.removeprefix("mcp__host__")
    return str(host("tools/call", name=name, arguments=arguments)["content"][0]["text"])


def declare(name: str, description: str, parameters: Any) -> Any:
    """Return what the model sees of a tool."""
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


command = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
tools = [declare("shell", "Run a command", command)]
for each in host("tools/list")["tools"]:
    tools.append(declare("mcp__host__" + each["name"], each["description"], each["inputSchema"]))
messages: list[Any] = [{"role": "user", "content": "What is in the file?"}]
while True:
    body = {"model": "inspect", "messages": messages, "tools": tools}
    answer = post("/v1/chat/completions", body)["choices"][0]["message"]
    messages.append(answer)
    if not answer.get("tool_calls"):
        break
    for call in answer["tool_calls"]:
        found = run(call["function"]["name"], json.loads(call["function"]["arguments"]))
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": found})
sys.stdout.write(answer["content"])
