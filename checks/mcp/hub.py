"""Starts `toolhub serve` for the checks of this folder."""
import contextlib
import json
import pathlib
import re
import subprocess
import sys
import time
import urllib.request

START_TIMEOUT = 30
KINDS = ("tools", "prompts", "resources")
PROGRAMS = pathlib.Path(__file__).resolve().with_name("clients")
# A tool whose calls report progress and can be cancelled.
COUNT_TOOL = f"""
[tools.count]
description = "Counts slowly."
kind = "stateful"
command = {json.dumps(sys.executable)}
args = {json.dumps([str(PROGRAMS / "count.py")])}
timeout = "1m"
[tools.count.parameters]
type = "object"
required = ["steps"]
[tools.count.parameters.properties]
steps = {{ type = "integer" }}
client = {{ type = "string" }}
pid_file = {{ type = "string" }}
"""


def everything(servers):
    """The command of `server-everything`."""
    folder = servers / "node_modules"
    return [str(folder / "node/bin/node"), str(folder / "@modelcontextprotocol/server-everything/dist/index.js"), "stdio"]


@contextlib.contextmanager
def running_hub(toolhub, folder, text, *tools):
    """The address of a hub with this config, once it has these tools, and prompts and resources."""
    folder.mkdir(exist_ok=True)
    (folder / "toolhub.toml").write_text(text)
    log = folder / "log"
    with log.open("w") as output:
        command = [toolhub, "serve", "--port", "0"]
        server = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        yield wait_until_ready(server, log, tools)
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def wait_until_ready(server, log, tools):
    end = time.monotonic() + START_TIMEOUT
    while time.monotonic() < end and server.poll() is None:
        if address := re.search(r"listening on (\S+)", log.read_text()):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(address[1] + "/readyz", timeout=5).close()
                names, *others = ([entry["name"] for entry in listed(address[1] + "/mcp", kind)] for kind in KINDS)
                if all(others) and names and set(tools) <= set(names):
                    return address[1]
        time.sleep(0.05)
    raise SystemExit(f"the hub lacks tools, prompts or resources of its MCP server:\n{log.read_text()}")


def listed(url, kind):
    method = f"{kind}/list"
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta}})
    headers = {
        "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method,
    }
    with urllib.request.urlopen(urllib.request.Request(url, body.encode(), headers), timeout=5) as response:
        return json.load(response)["result"][kind]
