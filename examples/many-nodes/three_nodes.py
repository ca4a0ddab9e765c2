"""Starts a Redis server and three nodes of one hub, uses them in turn, and kills one of them.

Needs redis-server and the program `toolhub` (or the variable TOOLHUB with its path). Everything ends with the script.
"""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
TOOLHUB = os.environ.get("TOOLHUB", "toolhub")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def is_open(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def wait_until(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"{what} did not happen within {seconds} s")
        time.sleep(0.1)


def request(port, method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"} if data else {}
    sent = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers, method=method)
    with urllib.request.urlopen(sent, timeout=30) as response:
        return json.load(response)


def start_node(folder, number, variables):
    """Starts a node on a free port. Returns its process and, when it accepts requests, its port."""
    log = pathlib.Path(folder) / f"node{number}.log"
    command = [TOOLHUB, "serve", "--config", str(HERE / "toolhub.toml"), "--port", "0"]
    with log.open("w") as output:
        node = subprocess.Popen(command, env=variables, cwd=folder, stdout=output, stderr=subprocess.STDOUT)

    def port():
        if node.poll() is not None:
            sys.exit(f"node {number} has ended: {log.read_text()}")
        return re.search(r"listening on http://127.0.0.1:(\d+)", log.read_text())

    wait_until(f"the start of node {number}", port)
    return node, int(port().group(1))


def count(port):
    """Counts once more in the thread `demo`, on the node at this port."""
    outcome = request(port, "POST", "/api/v1/tools/counter/calls", {"arguments": {}, "threadId": "demo"})
    if outcome["status"] != "success":
        sys.exit(f"the call failed: {outcome}")
    return outcome["output"]


def main():
    processes = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            redis_port = free_port()
            redis = ["redis-server", "--port", str(redis_port), "--bind", "127.0.0.1", "--dir", folder, "--appendonly", "yes"]
            processes.append(subprocess.Popen(redis, stdout=subprocess.DEVNULL))
            variables = {
                **os.environ,
                "REDIS_URL": f"redis://127.0.0.1:{redis_port}",
                "TOOLHUB_SEAL_SECRET": "a secret that all nodes share",
                "TOOLHUB__STORE__NODE_TIMEOUT": "2s",
            }
            wait_until("the start of Redis", lambda: is_open(redis_port))
            nodes, ports = [], []
            for number in (1, 2, 3):
                node, port = start_node(folder, number, variables)
                processes.append(node)
                nodes.append(node)
                ports.append(port)
            for number, port in enumerate(ports, 1):
                print(f"node {number} counts to", count(port))
            nodes[0].kill()
            nodes[0].wait()
            print("node 1 is killed")
            print("node 2 counts to", count(ports[1]))
            print("node 3 counts to", count(ports[2]))

            def states():
                return sorted(node["state"] for node in request(ports[1], "GET", "/api/v1/nodes")["items"])

            wait_until("the end of node 1 in the list of nodes", lambda: states().count("alive") == 2)
            print("nodes that are alive: 2")
        finally:
            for process in reversed(processes):
                process.terminate()
            for process in processes:
                process.wait()


if __name__ == "__main__":
    main()
