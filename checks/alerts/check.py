"""Checks alerts with the real program: signatures, that none is missing after `kill -9`, and the files for Prometheus and Grafana.

check.py PROGRAM [--rounds N]
"""

import argparse
import base64
import http.server
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from standardwebhooks.webhooks import Webhook

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECRETS = ["whsec_" + base64.b64encode(os.urandom(32)).decode() for _ in range(2)]
CANARY = "CANARY7f3a"
TOOLS = 1000


def expect(condition, message):
    if not condition:
        sys.exit(f"alerts: {message}")


def wait_until(what, condition, seconds=90):
    end = time.monotonic() + seconds
    while not condition():
        expect(time.monotonic() < end, f"{what} did not happen within {seconds} s")
        time.sleep(0.1)


class Receiver(http.server.ThreadingHTTPServer):
    """Takes messages and verifies their signatures with the official package, with each of the secrets."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.messages, self.problems, self.lock = [], [], threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/hooks/{CANARY}-path"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name: self.headers[name] for name in ("webhook-id", "webhook-timestamp", "webhook-signature")}
        with self.server.lock:
            for secret in SECRETS:
                try:
                    Webhook(secret).verify(body, headers)
                except Exception as error:
                    self.server.problems.append(f"signature not verified: {error!r}")
            if CANARY in body.decode():
                self.server.problems.append(f"a secret text is in a message: {body[:500]}")
            self.server.messages.append((headers["webhook-id"], json.loads(body)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


class Program:
    """A running server."""

    def __init__(self, program, folder):
        self.process = subprocess.Popen(
            [program, "serve", "--config", folder / "toolhub.toml", "--port", "0", "--json"],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        self.url = None
        for line in self.process.stdout:
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            if found:
                self.url = found[0]
                break
        expect(self.url, "the server printed no address")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def request(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.read()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def write_config(folder, receiver):
    tools = "\n".join(
        f'[tools.tool{number}]\nkind = "stateless"\ndescription = "x"\ncommand = "true"\n' for number in range(TOOLS)
    )
    (folder / "toolhub.toml").write_text(
        f"""
[store]
path = "toolhub.db"

[[alerts]]
name = "ops"
url = {{ env = "ALERT_URL" }}
secret = "{SECRETS[0]}"
previous_secret = "{SECRETS[1]}"
allow_hosts = ["127.0.0.1"]

{tools}
"""
    )
    os.environ["ALERT_URL"] = receiver.url


def check_kill(program, rounds):
    """Every acknowledged change is in a message, although the server is killed while it evaluates and sends."""
    receiver = Receiver()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_config(folder, receiver)
        acknowledged = set()
        per_round = -(-TOOLS // rounds)
        for number in range(rounds):
            server = Program(program, folder)
            begin = number * per_round
            for tool in range(begin, min(begin + per_round, TOOLS)):
                body = {"status": "maintenance", "reason": "planned"}
                server.request("PUT", f"/api/v1/tools/tool{tool}/status", body)
                acknowledged.add(f"tool{tool}")
            # While it evaluates, or sends, or before.
            time.sleep((number % 5) * 0.6)
            server.kill()
        server = Program(program, folder)
        metrics = server.request("GET", "/metrics").decode()

        def told():
            with receiver.lock:
                return {alert["thing"] for _, message in receiver.messages for alert in message["data"]["alerts"]}

        wait_until(f"a message about each of {len(acknowledged)} changes", lambda: told() >= acknowledged, 150)
        server.process.terminate()
        server.process.wait()
    expect(not receiver.problems, "; ".join(receiver.problems[:3]))
    by_id, alerts = {}, {}
    for message_id, message in receiver.messages:
        expect(by_id.setdefault(message_id, message) == message, f"two messages have the id {message_id}")
        for alert in message["data"]["alerts"]:
            expect(alerts.setdefault(alert["thing"], alert["id"]) == alert["id"], f"{alert['thing']} was told twice")
    expect(len(set(alerts.values())) == len(alerts), "two alerts have one id")
    repeated = len(receiver.messages) - len(by_id)
    print(f"alerts: {len(alerts)} changes, killed {rounds} times: all told in {len(by_id)} messages, {repeated} sent again with the same id")
    return metrics


def metric_names(text):
    """The metrics that expressions name, without the suffixes of histograms."""
    words = set(re.findall(r"\b(?:toolhub|gen_ai|mcp|process)_[a-z0-9_]+\b", text))
    return {re.sub(r"_(bucket|sum|count)$", "", word) for word in words}


def check_files(program):
    """The rules pass promtool, and every metric that rules and dashboard name is one of the program."""
    rules = ROOT / "deploy/prometheus/rules.yml"
    subprocess.run(["promtool", "check", "rules", rules], check=True, stdout=subprocess.DEVNULL)
    cases = ROOT / "checks/alerts/rules_test.yml"
    subprocess.run(["promtool", "test", "rules", cases], check=True, stdout=subprocess.DEVNULL)
    names = set(re.findall(r"alert: (\w+)", rules.read_text()))
    tested = set(re.findall(r"alertname: (\w+)", cases.read_text()))
    expect(names == tested, f"rules without a case, or cases without a rule: {names ^ tested}")
    dashboard = json.loads((ROOT / "deploy/grafana/toolhub.json").read_text())
    expressions = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    labels = {"gen_ai_tool_name", "gen_ai_request_model"}
    rule_expressions = re.sub(r"(?m)^\s*(summary|runbook):.*$", "", rules.read_text())
    known = program.read_bytes()
    for name in metric_names(expressions + rule_expressions) - labels:
        expect(name.encode() in known, f"the program has no metric {name}")
    print(f"alerts: {len(names)} rules pass promtool, each with a case; all metrics exist")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    program = arguments.program.resolve()
    check_files(program)
    metrics = check_kill(program, arguments.rounds)
    expect("toolhub_alert_deliveries_total" in metrics, "/metrics has no deliveries of alerts")


main()
