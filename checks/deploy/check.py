"""Checks the files in deploy/ against the program: no container is started, but Redis and two nodes as the files start them.

check.py PROGRAM
"""

import json
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.error
import urllib.request

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PROGRAM = os.path.abspath(sys.argv[1])
PASSWORD = "a password of Redis"


def expect(condition, message):
    if not condition:
        sys.exit(f"deploy: {message}")


def wait_until(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        expect(time.monotonic() < end, f"{what} did not happen within {seconds} s")
        time.sleep(0.1)


def seconds_of(text):
    found = re.fullmatch(r"(\d+)s", str(text))
    expect(found, f"`{text}` is not a number of seconds")
    return int(found[1])


def variables_of(config):
    """The environment variables without which the config is refused."""
    names = set(re.findall(r"env = \"(\w+)\"", config)) | set(re.findall(r"\$\{(\w+)\}", config))
    return names


def check_texts(compose, manifests, config):
    """Compares the files with each other and with the sources. Returns the container of a node."""
    by_kind = {(one["kind"], one["metadata"]["name"]): one for one in manifests}
    expect(by_kind["ConfigMap", "toolhub"]["data"]["toolhub.toml"] == config, "kubernetes.yaml has another config than toolhub.toml")
    pod = by_kind["Deployment", "toolhub"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    provided = {"compose.yaml": set(compose["services"]["toolhub"]["environment"]), "kubernetes.yaml": {one["name"] for one in container["env"]}}
    for file, names in provided.items():
        missing = variables_of(config) - names
        expect(not missing, f"{file} does not set {missing}")
        unknown = {name for name in names if name not in config}
        expect(not unknown, f"{file} sets {unknown}, which the config does not use")
    drain = 30
    grace = seconds_of(compose["services"]["toolhub"]["stop_grace_period"])
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    expect(grace > drain and pod["terminationGracePeriodSeconds"] > drain + pause, "a node is killed before its calls are cancelled")
    for service in ("Service", "Deployment"):
        expect((service, "toolhub") in by_kind, f"kubernetes.yaml has no {service}")
    port = by_kind["Service", "toolhub"]["spec"]["ports"][0]["port"]
    balancer = (DEPLOY / "haproxy.cfg").read_text()
    expect(port == container["ports"][0]["containerPort"] == 8665 and f"toolhub:{port} check" in balancer, "the ports differ")
    return container


def check_dockerfile():
    text = (DEPLOY / "Dockerfile").read_text()
    metadata = subprocess.run(["cargo", "metadata", "--no-deps", "--format-version", "1"], cwd=ROOT, check=True, capture_output=True)
    packages = {package["name"]: package for package in json.loads(metadata.stdout)["packages"]}
    found = re.search(r"--profile (\S+) -p (\S+) --bin (\S+)", text)
    profile, package, binary = found.groups()
    expect(profile in tomllib.loads((ROOT / "Cargo.toml").read_text())["profile"], f"the profile {profile} does not exist")
    targets = [target["name"] for target in packages[package]["targets"] if "bin" in target["kind"]]
    expect(binary in targets and f"target/{profile}/{binary}" in text, f"{package} has no program {binary}")
    expect(f"FROM rust:{packages[package]['rust_version']}" in text, "the Dockerfile has another version of Rust than Cargo.toml")
    for line in re.findall(r"^(?:ENTRYPOINT|CMD) (.*)$", text, re.MULTILINE):
        expect(isinstance(json.loads(line), list), f"`{line}` would run in a shell, which hands over no signals")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start_redis(arguments, folder):
    """Starts the server with the arguments of the file. Returns the process and the port."""
    arguments = [argument for argument in arguments if argument != "redis-server"]
    at = arguments.index("--requirepass") + 1
    arguments[at] = PASSWORD
    if "--dir" in arguments:
        arguments[arguments.index("--dir") + 1] = folder
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", "", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def answers():
        expect(process.poll() is None, f"redis-server refuses {shlex.join(arguments)}")
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    wait_until("the start of Redis", answers)
    return process, port


def start_node(arguments, variables, log):
    """Starts a node as its container does, but on a free port."""
    arguments = [str(DEPLOY / "toolhub.toml") if argument.endswith("toolhub.toml") else argument for argument in arguments]
    with log.open("w") as output:
        node = subprocess.Popen([PROGRAM, *arguments, "--port", "0"], env=variables, cwd="/", stdout=output, stderr=subprocess.STDOUT)

    def port():
        expect(node.poll() is None, f"a node has ended: {log.read_text()}")
        return re.search(r"listening on http://[^ \"]*:(\d+)", log.read_text())

    wait_until("the start of a node", port)
    return node, int(port().group(1))


def get(port, path, headers):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def probes(container):
    """Path and headers of each health check."""
    for name in ("readinessProbe", "livenessProbe"):
        probe = container[name]["httpGet"]
        yield probe["path"], {header["name"]: header["value"] for header in probe["httpHeaders"]}
    text = (DEPLOY / "haproxy.cfg").read_text()
    path, host = re.search(r"http-check send meth GET uri (\S+) ver HTTP/1.1 hdr Host (\S+)", text).groups()
    yield path, {"Host": host}


def check_nodes(redis_arguments, node_arguments, container, folder):
    created = subprocess.run([PROGRAM, "--json", "keys", "create", "ops", "--scope", "admin"], cwd=folder, check=True, capture_output=True)
    key = json.loads(created.stdout)
    processes = []
    try:
        redis, port = start_redis(redis_arguments, folder)
        processes.append(redis)
        variables = {
            "PATH": os.environ["PATH"],
            "REDIS_URL": f"redis://127.0.0.1:{port}/0",
            "REDIS_PASSWORD": PASSWORD,
            "TOOLHUB_SEAL_SECRET": "a secret that all nodes share",
            "TOOLHUB_ADMIN_HASH": key["hash"],
            "TOOLHUB_HOST": "toolhub.example",
        }
        command = [PROGRAM, "config", "check", "--config", str(DEPLOY / "toolhub.toml")]
        checked = subprocess.run(command, env=variables, capture_output=True, text=True)
        expect(checked.returncode == 0, f"toolhub.toml is refused: {checked.stdout}{checked.stderr}")
        nodes = []
        for number in (1, 2):
            node, node_port = start_node(node_arguments, variables, pathlib.Path(folder) / f"node{number}.log")
            processes.append(node)
            nodes.append((node, node_port))
        for path, headers in probes(container):
            status, text = get(nodes[0][1], path, headers)
            expect(status == 200, f"{path} with {headers} answers {status}: {text}")
        headers = {"Host": "toolhub.example", "Authorization": f"Bearer {key['key']}"}

        def ready():
            return get(nodes[0][1], "/readyz?verbose", headers)[1]

        wait_until("the second node in the list of nodes", lambda: "[+]nodes 2 alive" in ready())
        text = ready()
        expect("persistence aof always" in text, f"Redis does not keep everything: {text}")
        expect("[!]store" not in text and "[-]" not in text, f"a node is degraded: {text}")
        for node, _ in nodes:
            node.send_signal(signal.SIGTERM)
        for node, _ in nodes:
            expect(node.wait(60) == 0, "a node does not stop in order")
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


def main():
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    manifests = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    config = (DEPLOY / "toolhub.toml").read_text()
    container = check_texts(compose, manifests, config)
    check_dockerfile()
    by_compose = json.loads(re.search(r"^CMD (.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)[1])
    (redis,) = [one for one in manifests if one["kind"] == "StatefulSet"]
    in_kubernetes = redis["spec"]["template"]["spec"]["containers"][0]["args"]
    for redis_arguments, node_arguments in ((compose["services"]["redis"]["command"], by_compose), (in_kubernetes, container["args"])):
        with tempfile.TemporaryDirectory() as folder:
            check_nodes(redis_arguments, node_arguments, container, folder)
    print("deploy: compose.yaml, kubernetes.yaml, haproxy.cfg and Dockerfile fit the program")


if __name__ == "__main__":
    main()
