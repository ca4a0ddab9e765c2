"""Runs client -> hub -> hub -> `server-everything`: progress, cancels and a question pass both hubs, in all crossings of the eras.

usage: chain.py SERVERS TOOLHUB      SERVERS: the folder with `node_modules` and `venv`; TOOLHUB: the program
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
SLOW_TOOL = "trigger-long-running-operation"
ERAS = ("legacy", "modern")
FEATURES = ["question", "progress", "cancel of a server", "cancel of a program"]


def inner_config(servers, record):
    program, *arguments = everything(servers)
    # For some seconds after a cancel, a question on the same pipe may belong to the cancelled call and is declined. So calls that are
    # cancelled have a process of their own.
    return f"""
[server]
drain_timeout = "1s"
[mcp_servers.everything]
command = {json.dumps(program)}
args = {json.dumps(arguments)}
trust = true
resources = true
prompts = true
[mcp_servers.recorded]
command = {json.dumps(sys.executable)}
args = {json.dumps([str(PROGRAMS / "recorder.py"), str(record), program, *arguments])}
trust = true
{COUNT_TOOL}"""


def outer_config(inner, era):
    return f"""
[server]
drain_timeout = "1s"
[mcp_servers.inner]
url = "{inner}/mcp"
allow_hosts = ["127.0.0.1"]
protocol = "{era}"
trust = true
resources = true
prompts = true
"""


def run(servers, toolhub, folder, hubs):
    """The result of the client; `hubs`: the era between the hubs."""
    record = folder / "record"
    inner_hub = running_hub(toolhub, folder / "inner", inner_config(servers, record), f"recorded__{SLOW_TOOL}")
    with inner_hub as inner:
        with running_hub(toolhub, folder / "outer", outer_config(inner, hubs), f"inner__recorded__{SLOW_TOOL}") as outer:
            command = [servers / "venv/bin/python", PROGRAMS / "chain_client.py", outer, record]
            return subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_TIMEOUT, stdin=subprocess.DEVNULL)


def report(hubs, result):
    """Prints the lines of a client. Whether all features are there."""
    lines = dict(line.split(": ", 1) for line in result.stdout.splitlines() if ": " in line)
    passed = result.returncode == 0
    for era in ERAS:
        for feature in FEATURES:
            line = lines.get(f"{era}, {feature}", "FAILED: no line of the client")
            passed &= line.startswith("ok")
            print(f"chain, {era} client, {hubs} between the hubs, {feature}: {line}", flush=True)
    if not passed:
        print(f"exit code {result.returncode}\n{result.stdout}{result.stderr}")
    return passed


def main(servers, toolhub):
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(len(ERAS)) as pool:
        folders = {hubs: pathlib.Path(folder, hubs) for hubs in ERAS}
        for path in folders.values():
            path.mkdir()
        chains = [(hubs, pool.submit(run, servers, toolhub, path, hubs)) for hubs, path in folders.items()]
        failed = sum(1 for hubs, chain in chains if not report(hubs, chain.result()))
    return f"{failed} chains failed" if failed else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), str(pathlib.Path(sys.argv[2]).resolve())))
