"""Asks the questions of search_questions.json for tools of the largest document, over the MCP endpoint of a real server.

usage: search.py TOOLHUB FOLDER      FOLDER: where check.py stores the documents
"""
import json
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

from documents import fetched

QUESTIONS = pathlib.Path(__file__).with_name("search_questions.json")
# How many of the questions must have a wanted tool among the first five.
LEAST = 54
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "search", "version": "1"},
}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def call(url, tool, arguments):
    params = {"name": tool, "arguments": arguments, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    headers = {
        "Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call", "Mcp-Name": tool,
    }
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as response:
        return json.load(response)["result"]


def plain(name):
    """A name without what differs between operations and tools."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower())


def ready(process, base, log):
    for _ in range(600):
        if process.poll() is not None:
            sys.exit(f"the server exited with code {process.returncode}:\n{log.read_text()}")
        try:
            return urllib.request.urlopen(base + "/readyz", timeout=5).close()
        except OSError:
            time.sleep(0.1)
    sys.exit("the server is not ready after 60 s")


def main(toolhub, folder):
    document, port = fetched(folder)["github"], free_port()
    with tempfile.TemporaryDirectory() as temporary:
        config = pathlib.Path(temporary, "toolhub.toml")
        config.write_text(f"""
[server]
port = {port}
[store]
backend = "memory"
[[imports.openapi]]
spec = "{document.resolve()}"
prefix = ""
""")
        log = pathlib.Path(temporary, "log")
        with log.open("w") as output:
            process = subprocess.Popen([toolhub, "serve", "--config", config], stdout=output, stderr=output)
        try:
            base = f"http://127.0.0.1:{port}"
            ready(process, base, log)
            url, durations, missed = base + "/mcp?mode=search", [], []
            questions = json.loads(QUESTIONS.read_text())
            for question in questions:
                started = time.perf_counter()
                result = call(url, "search_tools", {"query": question["question"], "limit": 5})
                durations.append(time.perf_counter() - started)
                found = [tool["name"] for tool in result.get("structuredContent", {}).get("tools", [])]
                wanted = {plain(name) for name in question["wanted"]}
                if not any(plain(name) in wanted for name in found):
                    missed.append((question["question"], question["wanted"][0], found[:1]))
        finally:
            process.terminate()
            process.wait(30)
    found = len(questions) - len(missed)
    print(f"search: {found} of {len(questions)} questions found their tool among the first five; {statistics.median(durations) * 1e3:.1f} ms each")
    if found < LEAST:
        for miss in missed:
            print("not found:", *miss)
        sys.exit(f"fewer than {LEAST} questions found their tool")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
