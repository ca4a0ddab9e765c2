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
from hub import COUNT_TOOL, PROGRAMS, everything, running_hub  # noqa: E402

CLIENT_TIMEOUT = 60
FEATURES = ["list tools", "call", "structured output", "progress", "cancel", "approval by form", "list change", "artifact"]
# Program, mode -> features that the client itself lacks.
LACKING = {
    ("fastmcp_client.py", "auto"): {"list change"},
    ("inspector.py", "legacy"): {"progress", "cancel", "approval by form", "list change"},
    ("inspector.py", "modern"): {"progress", "approval by form", "list change"},
}
# Program -> modes; the slowest first.
CLIENTS = {
    "inspector.py": ["legacy", "modern"],
    "python_sdk.py": ["auto", "legacy", "modern"],
    "fastmcp_client.py": ["auto", "legacy"],
    "typescript1.mjs": ["legacy"],
    "typescript2.mjs": ["auto", "legacy", "modern"],
}


def config(servers):
    program, *arguments = everything(servers)
    # Each client has a tool whose status it changes, and a toolset, so that it hears of no other changes.
    names = [f"{client.partition('.')[0]}-{mode}" for client, modes in CLIENTS.items() for mode in modes]
    own = "".join(
        f'''[tools.switched-{name}]
builtin = "clock"
[toolsets.{name}]
tools = ["switched-{name}", "count", "long_text", "remove", "everything__*"]
''' for name in names
    )
    return f"""
[server]
drain_timeout = "1s"
[status]
rebind_delay = "200ms"
[mcp_servers.everything]
command = {json.dumps(program)}
args = {json.dumps(arguments)}
trust = true
resources = true
prompts = true
{COUNT_TOOL}
[tools.long_text]
description = "Returns a long text."
command = {json.dumps(sys.executable)}
args = ["-c", "print('\\"' + '0123456789' * 1_000 + '\\"')"]
parameters = {{ type = "object", properties = {{}} }}
text_limit = 100
[tools.remove]
builtin = "dangerous"
confirm = true
{own}"""


def run(servers, address, program):
    interpreter = "node_modules/node/bin/node" if program.endswith(".mjs") else "venv/bin/python"
    command = [servers / interpreter, PROGRAMS / program, address, *CLIENTS[program]]
    # Programs in JavaScript find their packages in the working directory.
    return subprocess.run(command, cwd=servers, capture_output=True, text=True, timeout=CLIENT_TIMEOUT, stdin=subprocess.DEVNULL)


def report(program, result):
    """Prints the lines of a client. Returns those that are not as they must be."""
    lines = dict(line.split(": ", 1) for line in result.stdout.splitlines() if ": " in line)
    wrong = [] if result.returncode == 0 else [f"client {program}: exit code {result.returncode}"]
    for mode in CLIENTS[program]:
        for feature in FEATURES:
            line = lines.get(f"{mode}, {feature}", "FAILED: no line of the client")
            report = f"client {program}, {mode}, {feature}: {line}"
            print(report, flush=True)
            if not line.startswith("cannot" if feature in LACKING.get((program, mode), ()) else "ok"):
                wrong.append(report)
    if wrong:
        print(f"{result.stdout}{result.stderr}")
    return wrong


def main(servers, toolhub):
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(len(CLIENTS)) as pool:
        hub = pathlib.Path(folder, "hub")
        with running_hub(toolhub, hub, config(servers)) as address:
            runs = [(program, pool.submit(run, servers, address, program)) for program in CLIENTS]
            wrong = [line for program, client in runs for line in report(program, client.result())]
        if wrong:
            print("the log of the hub ends with:\n" + (hub / "log").read_text()[-10_000:])
    # Last, because a long log may be cut at its beginning.
    return "\n".join(["clients failed:", *wrong]) if wrong else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), str(pathlib.Path(sys.argv[2]).resolve())))
