"""Checks a real server against its own OpenAPI document.

usage: check.py SERVER [--seconds N]     SERVER: the program of crates/server/examples/serve.rs

The document is valid OpenAPI 3.1; generated requests, valid and invalid, are answered as documented and never with an internal
error; the samples of docs/http.md and docs/guide/migrate.md and the agents of examples/http work.
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
# Values that the generator could not guess: resources of the server. Random values are tried as well.
KNOWN = {
    "name": ["weather", "notes", "order", "rare", "report"],
    "id": ["demo"],
    "threadId": ["demo"],
    "contextId": ["demo/notes", "~/shared"],
    "kind": ["business", "session", "cache", "connection"],
}


@contextlib.contextmanager
def server(program, *words):
    """Starts a server; yields its URL and key. It stops when its standard input is closed."""
    process = subprocess.Popen([program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        url = process.stdout.readline().strip()
        key = process.stdout.readline().strip() if "--keys" in words else ""
        if not url.startswith("http://"):
            sys.exit("the server did not print its URL")
        yield url, key
        if process.poll() is not None:
            sys.exit(f"the server exited unexpectedly with code {process.returncode}")
    finally:
        process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            sys.exit("the server did not stop within 30 s")
    if process.returncode:
        sys.exit(f"the server exited with code {process.returncode}")


def load_document(url):
    with urllib.request.urlopen(f"{url}/openapi.json") as answer:
        return json.load(answer)


def validate(document):
    from openapi_spec_validator import OpenAPIV31SpecValidator

    problems = [f"{list(one.absolute_path)}: {one.message[:300]}" for one in OpenAPIV31SpecValidator(document).iter_errors()]
    if problems:
        sys.exit("the document is not valid OpenAPI 3.1:\n" + "\n".join(problems[:20]))
    print(f"document: valid, {sum(len(item) for item in document['paths'].values())} operations")


def with_examples(document):
    """The document, with known resource names as examples."""
    document = copy.deepcopy(document)
    for item in document["paths"].values():
        for operation in item.values():
            for parameter in operation.get("parameters", []):
                words = KNOWN.get(parameter["name"])
                if parameter["in"] == "path" and words:
                    parameter["schema"] = {"anyOf": [{"enum": words}, parameter["schema"]]}
    return document


def generated(url, key, document, seconds):
    """Sends generated requests. Endless streams and the redirect of `/` are left to the Rust tests."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "openapi.json"
        path.write_text(json.dumps(with_examples(document)))
        command = [
            shutil.which("st", path=str(pathlib.Path(sys.executable).parent)) or "st",
            "--config-file", str(HERE / "schemathesis.toml"),
            "run", str(path), "--url", url, "--max-time", str(seconds), "--no-color", "--continue-on-failure",
            "--checks", "all", "--exclude-checks", "not_a_server_error",
            "--exclude-path-regex", "/events$|^/(ui)?$", "--warnings", "off", "--generation-database", "none",
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
        sys.exit("the server does not match its OpenAPI document")
    succeeded = sum(any(status.startswith("2") for status in statuses) for statuses in answers.values())
    if succeeded < len(answers) / 2:
        sys.exit(f"only {succeeded} of {len(answers)} operations ever succeeded: the check proves too little")


def samples(url, page):
    """Runs the samples of a page in order, and compares their output."""
    text = (ROOT / "docs" / page).read_text()
    blocks = re.findall(r"```(sh|python)\n(.*?)```(?:\n\n?```(?:json|text)\n(.*?)```)?", text, re.S)
    if not blocks:
        sys.exit(f"docs/{page} has no samples")
    with tempfile.TemporaryDirectory() as folder:
        for language, command, expected in blocks:
            environment = {**os.environ, "TOOLHUB": url, "HOME": folder}
            program = ["bash", "-euo", "pipefail", "-c"] if language == "sh" else [sys.executable, "-c"]
            done = subprocess.run([*program, command], cwd=folder, env=environment, capture_output=True, text=True, timeout=30)
            if done.returncode:
                sys.exit(f"a sample of docs/{page} failed:\n{command}\n{done.stdout}{done.stderr}")
            # `…` matches anything; everything else must be there, in this order.
            for line in filter(None, (line.strip() for line in expected.splitlines())):
                pattern = ".*".join(re.escape(part) for part in line.split("…"))
                if not re.search(pattern, done.stdout, re.S):
                    sys.exit(f"a sample of docs/{page} expects\n{line}\nbut the output was different:\n{command}\n{done.stdout}")
    print(f"docs/{page}: {len(blocks)} samples")


def agents(url, key):
    """Runs the agents of examples/http."""
    programs = [[sys.executable, "agent.py"]]
    if shutil.which("node"):
        programs.append(["node", "agent.mjs"])
    else:
        sys.exit("node is missing; examples/http/agent.mjs needs it")
    for program in programs:
        environment = {**os.environ, "TOOLHUB_URL": url, "TOOLHUB_TOKEN": key}
        done = subprocess.run(program, cwd=ROOT / "examples" / "http", env=environment, capture_output=True, text=True, timeout=30)
        if done.returncode or "Oslo" not in done.stdout.splitlines()[-1]:
            sys.exit(f"{program[1]} failed:\n{done.stdout}{done.stderr}")
        print(f"examples/http/{program[1]}: ok")


def main():
    program = sys.argv[1]
    seconds = int(sys.argv[sys.argv.index("--seconds") + 1]) if "--seconds" in sys.argv else 40
    with server(program) as (url, _):
        document = load_document(url)
        validate(document)
        agents(url, "")
        for page in ("http.md", "guide/migrate.md"):
            samples(url, page)
    with server(program, "--keys") as (url, key):
        generated(url, key, document, seconds)


if __name__ == "__main__":
    main()
