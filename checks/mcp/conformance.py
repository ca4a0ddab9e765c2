"""Runs the client scenarios of the official MCP conformance suite that need no login against our client.

usage: conformance.py SERVERS CLIENT      runs all scenarios; SERVERS: the folder with `node_modules`
       conformance.py client CLIENT URL   started by the suite: finds the token endpoint of the server, and runs CLIENT
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request

# The scored scenarios of each revision, without those that need a login in a browser. An extension belongs to no revision.
SCENARIOS = {
    "2025-11-25": ["initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"],
    "2026-07-28": [
        "tools_call", "request-metadata", "sep-2322-client-request-state", "http-standard-headers", "http-custom-headers",
        "http-invalid-tool-headers", "json-schema-ref-no-deref",
    ],
    "extension": ["auth/client-credentials-basic"],
}


def suite(servers, *args):
    node, package = servers / "node_modules/node/bin/node", servers / "node_modules/@modelcontextprotocol/conformance"
    return subprocess.run([node, package / "dist/index.js", *args], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)


def waiting(servers, revision):
    """The scored client scenarios of a revision that are not run. All of them need a login in a browser."""
    listed = suite(servers, "list", "--requirements", revision).stdout.partition("Client scenarios")[2].partition("\n\n")[0]
    return [name for name in re.findall(r"- (\S+)", listed) if name not in SCENARIOS[revision]]


def run(servers, client, revision, scenario, folder):
    command = shlex.join([sys.executable, os.path.abspath(__file__), "client", os.path.abspath(client)])
    version = () if revision == "extension" else ("--spec-version", revision)
    result = suite(servers, "client", "--command", command, "--scenario", scenario, "-o", folder, *version)
    output = result.stdout + result.stderr
    counts = re.search(r"Passed: (\d+)/(\d+), (\d+) failed", output)
    passed = result.returncode == 0 and counts is not None and int(counts[1]) > 0 and counts[3] == "0"
    return scenario, passed, counts[0] if counts else "no result", output


def main(servers, client):
    failed = 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(4) as pool:
        runs = [
            (revision, pool.submit(run, servers, client, revision, scenario, f"{folder}/{revision}-{number}"))
            for revision, scenarios in SCENARIOS.items() for number, scenario in enumerate(scenarios)
        ]
        for revision, future in runs:
            scenario, passed, counts, output = future.result()
            failed += not passed
            print(f"conformance {revision} {scenario}: {'ok' if passed else 'FAILED'} ({counts})", flush=True)
            if not passed:
                print(output)
    for revision in ("2025-11-25", "2026-07-28"):
        names = waiting(servers, revision)
        print(f"conformance {revision}: waiting for logins: {', '.join(names)}")
        failed += sum(1 for name in names if not name.startswith("auth/"))
    return f"{failed} scenarios failed" if failed else 0


def fetch(url):
    with urllib.request.urlopen(url, timeout=10) as response:
        return json.load(response)


def token_url(url):
    """The token endpoint, which a user of `auth` configures: the server names its authorization server, and that its endpoints."""
    parts = urllib.parse.urlsplit(url)
    resource = fetch(f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}")
    issuer = resource["authorization_servers"][0].rstrip("/")
    return fetch(issuer + "/.well-known/oauth-authorization-server")["token_endpoint"]


def start(client, url):
    if "client_secret" in json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}"):
        os.environ["TOKEN_URL"] = token_url(url)
    os.execv(client, [client, url])


if __name__ == "__main__":
    if sys.argv[1] == "client":
        start(sys.argv[2], sys.argv[3])
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2]))
