"""Imports large public documents and calls their tools against a recorder.

usage: check.py CALLER FOLDER [--calls N] [--only NAME] [--counts]

CALLER: the program of crates/connect/examples/openapi_calls.rs. FOLDER: where downloaded documents are stored. `--calls` operations of
each document are called, spread over all of it; each request is validated against the document with another library. `--counts` prints
the table of docs/openapi.md.
"""
import argparse
import contextlib
import dataclasses
import json
import pathlib
import re
import subprocess
import sys
import time

import yaml

from documents import DOCUMENTS, LEFT_OUT, fetched
from generate import Hopeless, arguments
from judge import Judge
from recorder import recorder

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
BASE = "/base/v9"


class Texts(yaml.CSafeLoader):
    """YAML with dates as strings, as in JSON."""


Texts.yaml_implicit_resolvers = {
    sign: [(tag, pattern) for tag, pattern in known if tag != "tag:yaml.org,2002:timestamp"]
    for sign, known in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def read(file):
    text = file.read_text()
    return json.loads(text) if file.suffix == ".json" else yaml.load(text, Texts)


class Caller:
    """The program that imports a document and calls its tools."""

    def __init__(self, program, file, base_url, document):
        schemes = document.get("components", {}).get("securitySchemes", {})
        kinds = {name: kind for name, scheme in schemes.items() if (kind := credential(scheme))}
        self.process = subprocess.Popen([program, file, base_url, json.dumps(kinds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.imported = self.line()

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the caller exited with code {self.process.wait()}")
        return json.loads(line)

    def call(self, tool, given):
        self.process.stdin.write(json.dumps({"tool": tool, "arguments": given}) + "\n")
        self.process.stdin.flush()
        return self.line()

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)


def credential(scheme):
    if scheme.get("type") == "http":
        return {"basic": "password", "bearer": "token"}.get(scheme.get("scheme", "").lower())
    return "token" if scheme.get("type") in ("apiKey", "oauth2", "openIdConnect") else None


def operations(document):
    return sum(1 for item in document["paths"].values() for method in item if method in METHODS)


def climbs(tool, given):
    """Whether a path argument has the segment `.` or `..`, which is refused whatever its schema allows."""
    values = [given.get(one["argument"]) for one in tool["parameters"] if one["place"] == "path"]
    return any(segment in (".", "..") for value in values for segment in re.split(r"[/\\]", str(value)))


def spread(tools, wanted):
    """Orders tools so that the first ones are spread over the document."""
    step = max(1, len(tools) // wanted)
    return [tool for offset in range(step) for tool in tools[offset::step]]


def check(name, file, program, calls):
    """Checks one document; returns complaints, and its row for the table."""
    begin = time.monotonic()
    document = read(file)
    with recorder() as (address, seen):
        base_url = address + BASE
        judge = Judge(document, base_url)
        with contextlib.closing(Caller(program, file, base_url, document)) as caller:
            tools, warnings = caller.imported["tools"], caller.imported["warnings"]
            complaints, done, hopeless = [], 0, 0
            for tool in spread(tools, calls):
                if done == calls:
                    break
                if f"{tool['method']} {tool['path']}" in LEFT_OUT.get(name, ()):
                    continue
                try:
                    given = arguments(tool["schema"], f"{name}/{tool['name']}")
                except Hopeless:
                    hopeless += 1
                    continue
                del seen[:]
                outcome = caller.call(tool["name"], given)
                done += 1
                if not outcome["ok"] and not seen and climbs(tool, given):
                    continue
                if not outcome["ok"] or len(seen) != 1:
                    wrong = [f"{len(seen)} requests; {outcome['text'][:300]}"]
                else:
                    wrong = judge.complaints(tool, given, seen[0])
                    blind = [what for what, request in spoiled(seen[0]) if not wrong and not judge.complaints(tool, given, request)]
                    wrong += [f"the judge misses {what}" for what in blind]
                complaints += [f"{name}: {tool['method']} {tool['path']}: {one}" for one in wrong]
    skipped = sum(1 for warning in warnings if warning["skipped"])
    cut = sum(1 for warning in warnings if "its schema is large" in warning["text"])
    row = [name, str(document["openapi"]), operations(document), len(tools), skipped, cut, done]
    seconds = " + ".join(f"{part:.1f}" for part in caller.imported["seconds"])
    print(f"{name}: {len(tools)} of {row[2]} operations imported, {skipped} skipped, {cut} cut; {done} called, {hopeless} without arguments, "
          f"{len(complaints)} complaints; {seconds} s to read, import and register, {time.monotonic() - begin:.1f} s in all", flush=True)
    if len(tools) + skipped != row[2]:
        complaints.append(f"{name}: {row[2]} operations, but {len(tools)} tools and {skipped} skipped")
    if done < min(calls, len(tools)):
        complaints.append(f"{name}: only {done} operations could be called")
    return complaints, row, warnings


def spoiled(seen):
    """Variants of the request with one error each; the judge must detect all of them."""
    path, mark, query = seen.target.partition("?")
    yield "another method", dataclasses.replace(seen, method="GET" if seen.method != "GET" else "DELETE")
    yield "a longer path", dataclasses.replace(seen, target=f"{path}/more{mark}{query}")
    yield "one pair more", dataclasses.replace(seen, target=f"{seen.target}{'&' if mark else '?'}more=1")
    yield "one header more", dataclasses.replace(seen, headers=[*seen.headers, ("X-More", "1")])
    if query:
        yield "one pair less", dataclasses.replace(seen, target=f"{path}?{query.rpartition('&')[0]}")
    if seen.body and dict(seen.headers).get("content-type", "").startswith("application/x-www-form"):
        yield "one field more", dataclasses.replace(seen, body=seen.body + b"&more=1")
        yield "one field less", dataclasses.replace(seen, body=seen.body.rpartition(b"&")[0])
    elif seen.body:
        yield "a shorter body", dataclasses.replace(seen, body=seen.body[:-1])


def table(rows):
    lines = ["| document | OpenAPI | operations | tools | skipped | schema cut | called |", "|---|---|---|---|---|---|---|"]
    return lines + [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("caller")
    parser.add_argument("folder")
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--only", choices=DOCUMENTS, action="append")
    parser.add_argument("--counts", action="store_true")
    parser.add_argument("--warnings", action="store_true")
    options = parser.parse_args()
    files = fetched(options.folder)
    complaints, rows = [], []
    for name in options.only or DOCUMENTS:
        wrong, row, warnings = check(name, files[name], options.caller, options.calls)
        complaints += wrong
        rows.append(row)
        if options.warnings:
            for warning in warnings:
                print("   ", warning["text"][:300])
    if options.counts:
        print("\n".join(table(rows)))
    elif not options.only:
        page = (ROOT / "docs/openapi.md").read_text()
        complaints += [f"docs/openapi.md does not have the row {line}" for line in table(rows) if line not in page]
    for complaint in complaints:
        print("FAILED", complaint[:900])
    print(f"{sum(row[-1] for row in rows)} calls, {len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
