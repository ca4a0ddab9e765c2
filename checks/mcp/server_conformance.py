"""Runs the server scenarios of the official MCP conformance suite against `toolhub serve` in front of `fixture_server.py`.

usage: server_conformance.py SERVERS TOOLHUB      SERVERS: the folder with `node_modules`; TOOLHUB: the program

Each revision of the protocol is run twice, with the fixture in each era, so that all four crossings of client and server are there. Each of
the four runs has its own hub, because a question of a server of the old era belongs to a call for certain only if no other call runs. The
run that starts a process for each call has the machine to itself, because a scenario gives a call only 500 ms.
"""
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from hub import running_hub  # noqa: E402

REVISIONS = ("2025-11-25", "2026-07-28")
ERAS = ("legacy", "modern")
FIXTURE = pathlib.Path(__file__).resolve().with_name("fixture_server.py")
# Its scenarios leave calls that have asked and are never answered. Each thread has its own process, so that these calls are not in the way
# of others.
PROCESS_PER_THREAD = ("2026-07-28", "legacy")
# Of one scenario, in milliseconds.
SCENARIO_TIMEOUT = 15_000

# Revision, era of the fixture, scenario -> why the old era has no words for what the scenario wants.
NO_ROOTS = "a server of the old era hears of roots only if the config has some"
INEXPRESSIBLE = {
    ("2026-07-28", "legacy", "input-required-result-basic-elicitation"): "a question has no key of the server's choice",
    ("2026-07-28", "legacy", "input-required-result-basic-list-roots"): NO_ROOTS,
    ("2026-07-28", "legacy", "input-required-result-multiple-input-requests"): NO_ROOTS,
}


def config(revision, era):
    instance = "per_thread" if (revision, era) == PROCESS_PER_THREAD else "shared"
    # The scenarios about tasks are not scored and take long, so they are run once.
    tasks = ["tasks"] if (revision, era) == ("2026-07-28", "modern") else []
    return f"""
[server]
drain_timeout = "1s"
[mcp_endpoint]
task_after = "200ms"
[mcp_servers.fixture]
command = {json.dumps(sys.executable)}
args = {json.dumps(["-S", str(FIXTURE), *tasks])}
protocol = "{era}"
instance = "{instance}"
prefix = ""
trust = true
resources = true
prompts = true
sampling = true
"""


def suite(servers, *args, **options):
    node, package = servers / "node_modules/node/bin/node", servers / "node_modules/@modelcontextprotocol/conformance"
    command = [node, package / "dist/index.js", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, **options)


def scored(servers, revision):
    """The scored server scenarios of a revision."""
    listed = suite(servers, "list", "--requirements", revision).stdout.partition("Server scenarios")[2].partition("\n\n")[0]
    return re.findall(r"- (\S+)", listed)


def run(servers, toolhub, revision, era, folder):
    """The checks of all scenarios of a revision, by scenario."""
    with running_hub(toolhub, folder, config(revision, era)) as address:
        result = suite(
            servers, "server", "--url", address + "/mcp", "--requirements", revision, "-o", "results",
            "--timeout", str(SCENARIO_TIMEOUT), cwd=folder,
        )
    checks = {}
    for file in sorted((folder / "results").glob("server-*/checks.json")):
        scenario = re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z", file.parent.name)[1]
        checks[scenario] = json.loads(file.read_text())
    if not checks:
        raise SystemExit(f"the suite failed:\n{result.stdout}{result.stderr}")
    return checks


def verdict(checks):
    """Whether a scenario passed, and its result for people."""
    failed = [check for check in checks if check["status"] == "FAILURE"]
    passed = sum(1 for check in checks if check["status"] == "SUCCESS")
    lines = [
        f"    {check['status'].lower()} {check['id']}: {check.get('errorMessage') or check['description']}"
        for check in checks if check["status"] in ("FAILURE", "WARNING")
    ]
    return passed > 0 and not failed, "\n".join([f"{passed}/{passed + len(failed)} checks", *lines])


def report(revision, era, scenario, checks, is_scored):
    """Prints a line about a scenario. Whether it is as it must be."""
    passed, text = verdict(checks)
    key = (revision, era, scenario)
    if key in INEXPRESSIBLE:
        state, is_right = f"not scored, because {INEXPRESSIBLE[key]}: {'ok' if passed else 'failed'}", True
    elif not is_scored:
        state, is_right = f"not scored: {'ok' if passed else 'failed'}", True
    else:
        state, is_right = "ok" if passed else "FAILED", passed
    print(f"conformance server {revision}, {era} fixture, {scenario}: {state} ({text})", flush=True)
    return is_right


def main(servers, toolhub):
    combinations = [(revision, era) for revision in REVISIONS for era in ERAS]
    combinations.sort(key=lambda combination: combination != PROCESS_PER_THREAD)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(len(combinations)) as pool:
        required = {revision: pool.submit(scored, servers, revision) for revision in REVISIONS}
        concurrent.futures.wait(required.values())
        runs = []
        for revision, era in combinations:
            future = pool.submit(run, servers, toolhub, revision, era, pathlib.Path(folder) / f"{revision}-{era}")
            runs.append((revision, era, future))
            if (revision, era) == PROCESS_PER_THREAD:
                concurrent.futures.wait([future])
        for revision, era, future in runs:
            checks, names = future.result(), required[revision].result()
            if not names:
                raise SystemExit(f"the suite lists no scenarios of {revision}")
            for scenario in names:
                wrong += not report(revision, era, scenario, checks.pop(scenario, []), True)
            for scenario, others in checks.items():
                report(revision, era, scenario, others, False)
    return f"{wrong} scenarios are not as they must be" if wrong else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), str(pathlib.Path(sys.argv[2]).resolve())))
