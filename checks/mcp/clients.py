"""Runs public MCP clients against `toolhub serve`, each as a program of its own, all at the same time.

usage: clients.py SERVERS TOOLHUB      SERVERS: the folder with `node_modules` and `venv`; TOOLHUB: the program
"""
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from hub import running_hub  # noqa: E402

CLIENTS = pathlib.Path(__file__).resolve().with_name("clients")
CLIENT_TIMEOUT = 60
FEATURES = ["list tools", "call", "structured output", "progress", "cancel", "approval by form", "list change", "artifact"]
# Program, mode -> features that the client itself lacks.
LACKING = {
    ("fastmcp_client.py", "auto"): {"list change"},
    ("inspector.py", "legacy"): {"progress", "cancel", "approval by form", "list change"},
    ("inspector.py", "modern"): {"progress", "approval by form", "list change"},
}
# Program -> modes; the slowest first.
PROGRAMS = {
    "inspector.py": ["legacy", "modern"],
    "python_sdk.py": ["auto", "legacy", "modern"],
    "fastmcp_client.py": ["auto", "legacy"],
    "typescript1.mjs": ["legacy"],
    "typescript2.mjs": ["auto", "legacy", "modern"],
}


def config(servers):
    everything = servers / "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
    # Each client has a tool whose status it changes, and a toolset, so that it hears of no other changes.
    own = "".join(
        f'''[tools.switched-{name}]
builtin = "clock"
[toolsets.{name}]
tools = ["switched-{name}", "count", "long_text", "remove", "everything__*"]
''' for name in (f"{program.partition('.')[0]}-{mode}" for program, modes in PROGRAMS.items() for mode in modes)
    )
    return f"""
[server]
drain_timeout = "1s"
[status]
rebind_delay = "200ms"
[mcp_servers.everything]
command = {json.dumps(str(node(servers)))}
args = {json.dumps([str(everything), "stdio"])}
trust = true
resources = true
prompts = true
[tools.count]
description = "Counts slowly."
kind = "stateful"
command = {json.dumps(sys.executable)}
args = {json.dumps([str(CLIENTS / "count.py")])}
timeout = "1m"
[tools.long_text]
description = "Returns a long text."
command = {json.dumps(sys.executable)}
args = ["-c", "print('\\"' + '0123456789' * 1_000 + '\\"')"]
text_limit = 100
[tools.remove]
builtin = "dangerous"
confirm = true
{own}"""


def node(servers):
    return servers / "node_modules/node/bin/node"


def run(servers, address, program):
    interpreter = node(servers) if program.endswith(".mjs") else servers / "venv/bin/python"
    command = [interpreter, CLIENTS / program, address, *PROGRAMS[program]]
    # Programs in JavaScript find their packages in the working directory.
    return subprocess.run(command, cwd=servers, capture_output=True, text=True, timeout=CLIENT_TIMEOUT, stdin=subprocess.DEVNULL)


def report(program, result):
    """Prints the lines of a client. Whether they are as they must be."""
    lines = dict(line.split(": ", 1) for line in result.stdout.splitlines() if ": " in line)
    is_right = result.returncode == 0
    for mode in PROGRAMS[program]:
        for feature in FEATURES:
            line = lines.get(f"{mode}, {feature}", "FAILED: no line of the client")
            is_right &= line.startswith("cannot" if feature in LACKING.get((program, mode), ()) else "ok")
            print(f"client {program}, {mode}, {feature}: {line}", flush=True)
    if not is_right:
        print(f"exit code {result.returncode}\n{result.stdout}{result.stderr}")
    return is_right


def main(servers, toolhub):
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(len(PROGRAMS)) as pool:
        with running_hub(toolhub, pathlib.Path(folder, "hub"), config(servers)) as address:
            runs = [(program, pool.submit(run, servers, address, program)) for program in PROGRAMS]
            failed = sum(1 for program, client in runs if not report(program, client.result()))
    return f"{failed} clients failed" if failed else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), str(pathlib.Path(sys.argv[2]).resolve())))
