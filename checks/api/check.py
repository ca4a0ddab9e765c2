"""Holds a real server to its own description.

usage: check.py SERVER [--seconds N]     SERVER: the program of crates/server/examples/serve.rs

The description is valid OpenAPI 3.1; generated requests, good and bad, are answered as it says and never with a failure
of ours; the samples of docs/http.md and the agents of examples/http work.
"""
import contextlib
import copy
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# What the generator could not guess: things the server has. Other words are tried beside them.
KNOWN = {
    "name": ["weather", "notes", "order", "rare", "report"],
    "id": ["demo"],
    "threadId": ["demo"],
    "contextId": ["demo/notes", "~/shared"],
    "kind": ["business", "session", "cache", "connection"],
}


@contextlib.contextmanager
def server(program, *words):
    """A server, by its address and its key; it ends when its input does."""
    process = subprocess.Popen([program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        url = process.stdout.readline().strip()
        key = process.stdout.readline().strip() if "--keys" in words else ""
        if not url.startswith("http://"):
            sys.exit("the server did not tell its address")
        yield url, key
        if process.poll() is not None:
            sys.exit(f"the server ended by itself, with exit code {process.returncode}")
    finally:
        process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            sys.exit("the server did not end within 30 s")
    if process.returncode:
        sys.exit(f"the server ended with exit code {process.returncode}")


def described(url):
    with urllib.request.urlopen(f"{url}/openapi.json") as answer:
        return json.load(answer)


def validate(document):
    from openapi_spec_validator import OpenAPIV31SpecValidator

    problems = [f"{list(one.absolute_path)}: {one.message[:300]}" for one in OpenAPIV31SpecValidator(document).iter_errors()]
    if problems:
        sys.exit("the description is no valid OpenAPI 3.1:\n" + "\n".join(problems[:20]))
    print(f"description: valid, {sum(len(item) for item in document['paths'].values())} operations")


def helped(document):
    """The description, with the names of things that are there."""
    document = copy.deepcopy(document)
    for item in document["paths"].values():
        for operation in item.values():
            for parameter in operation.get("parameters", []):
                words = KNOWN.get(parameter["name"])
                if parameter["in"] == "path" and words:
                    parameter["schema"] = {"anyOf": [{"enum": words}, parameter["schema"]]}
    return document


def generated(url, key, document, seconds):
    """Requests made from the description. Streams without an end are left to the Rust tests."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "openapi.json"
        path.write_text(json.dumps(helped(document)))
        command = [
            shutil.which("st", path=str(pathlib.Path(sys.executable).parent)) or "st",
            "--config-file", str(HERE / "schemathesis.toml"),
            "run", str(path), "--url", url, "--max-time", str(seconds), "--no-color", "--continue-on-failure",
            "--checks", "all", "--exclude-checks", "not_a_server_error",
            "--exclude-path-regex", "/events$", "--warnings", "off", "--generation-database", "none",
            "-H", f"Authorization: Bearer {key}",
        ]
        seed = os.environ.get("TOOLHUB_SEED")
        command += ["--seed", seed] if seed else []
        seen = pathlib.Path(folder) / "seen.json"
        environment = {**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(HERE), "TOOLHUB_SEEN": str(seen)}
        failed = subprocess.run(command, cwd=folder, env=environment).returncode
        answers = json.loads(seen.read_text())
    for operation, statuses in sorted(answers.items()):
        print(f"  {operation:60}", " ".join(f"{status}×{many}" for status, many in sorted(statuses.items())))
    if failed:
        sys.exit("the server does not keep to its description")
    succeeded = sum(any(status.startswith("2") for status in statuses) for statuses in answers.values())
    if succeeded < len(answers) / 2:
        sys.exit(f"only {succeeded} of {len(answers)} operations ever succeeded: the check has no teeth")


def samples(url):
    """Runs the samples of docs/http.md one after another, as a reader would, and looks for what they promise."""
    text = (ROOT / "docs" / "http.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```(?:\n\n?```(?:json|text)\n(.*?)```)?", text, re.S)
    if not blocks:
        sys.exit("docs/http.md has no samples")
    with tempfile.TemporaryDirectory() as folder:
        for command, expected in blocks:
            environment = {**os.environ, "TOOLHUB": url, "HOME": folder}
            shell = ["bash", "-euo", "pipefail", "-c", command]
            done = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, timeout=30)
            if done.returncode:
                sys.exit(f"a sample of docs/http.md failed:\n{command}\n{done.stdout}{done.stderr}")
            # `…` stands for anything; everything else is there, in this order.
            for line in filter(None, (line.strip() for line in expected.splitlines())):
                pattern = ".*".join(re.escape(part) for part in line.split("…"))
                if not re.search(pattern, done.stdout, re.S):
                    sys.exit(f"a sample of docs/http.md promises\n{line}\nbut this came of\n{command}\n{done.stdout}")
    print(f"docs/http.md: {len(blocks)} samples")


def agents(url, key):
    """The agents of examples/http make a model's calls."""
    programs = [[sys.executable, "agent.py"]]
    if shutil.which("node"):
        programs.append(["node", "agent.mjs"])
    else:
        sys.exit("node is missing; examples/http/agent.mjs needs it")
    for program in programs:
        environment = {**os.environ, "TOOLHUB_URL": url, "TOOLHUB_TOKEN": key}
        done = subprocess.run(program, cwd=ROOT / "examples" / "http", env=environment, capture_output=True, text=True, timeout=30)
        if done.returncode or "Oslo" not in done.stdout.splitlines()[-1]:
            sys.exit(f"{program[1]} does not work:\n{done.stdout}{done.stderr}")
        print(f"examples/http/{program[1]}: ok")


def main():
    program = sys.argv[1]
    seconds = int(sys.argv[sys.argv.index("--seconds") + 1]) if "--seconds" in sys.argv else 40
    with server(program) as (url, _):
        document = described(url)
        validate(document)
        agents(url, "")
        samples(url)
    with server(program, "--keys") as (url, key):
        generated(url, key, document, seconds)


if __name__ == "__main__":
    main()
