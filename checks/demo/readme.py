"""Plays the terminal session of the README.

In: the program, as the first argument. Out: a line for each command; exit code 1 at the first that prints something else.
`…` at the end of a line stands for any text, a line with only `…` for any lines; times and the port may differ.
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from terminal import plain, watch  # noqa: E402

README = pathlib.Path(__file__).parent.parent.parent / "README.md"
DEMO = "cargo run --release -- "
PROMPT = re.compile(r"(.*\[\?\] more  >) (\w+)$")


def session() -> list[tuple[str, str, list[str]]]:
    """Each command of the session with its comment and the output expected of it."""
    block = README.read_text().split("```console\n", 1)[1].split("```", 1)[0]
    steps = []
    for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        typed, *shown = step.splitlines()
        command, _, comment = typed.partition("  #")
        steps.append((command.strip(), comment.strip(), shown))
    return steps


def normal(line: str) -> str:
    """A line without what differs between two runs: erased text, times, the port, widths of columns."""
    line = line.rsplit("\x1b[K", 1)[-1]
    line = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "MOMENT", line)
    line = re.sub(r"<?\b[\d.]+ ?m?s\b", "TIME", line.replace("<1ms", "1ms"))
    return re.sub(r"\s+", " ", re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", line)).strip()


def missing(expected: list[str], shown: str) -> list[str]:
    """The expected lines that do not appear, in this order, in the output."""
    rest, wrong = [normal(line) for line in plain(shown).splitlines()], []
    for line in expected:
        wanted = normal(PROMPT.sub(r"\1", line))
        if wanted == "…":
            continue
        start = wanted.removesuffix("…").strip()
        is_it = (lambda got: got.startswith(start)) if wanted.endswith("…") or PROMPT.match(line) else (lambda got: got == start)
        at = next((at for at, got in enumerate(rest) if is_it(got)), None)
        if at is None:
            wrong.append(line)
        else:
            rest = rest[at + 1 :]
    return wrong


def main() -> int:
    program = str(pathlib.Path(sys.argv[1]).resolve())
    (first, _, banner), *steps = session()
    assert first == DEMO + "demo", first
    for name in ("TOOLHUB_URL", "TOOLHUB_CONFIG", "TOOLHUB_TOKEN"):
        os.environ.pop(name, None)
    os.environ["LANG"] = "C.UTF-8"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HOME"] = folder
        os.chdir(folder)
        log = pathlib.Path(folder, "log")
        demo = subprocess.Popen([program, "demo", "--port", "0"], stdout=subprocess.PIPE, stderr=log.open("w"), text=True)
        code = 1
        try:
            code = replay(program, demo, first, banner, steps)
        finally:
            demo.terminate()
            demo.wait(30)
            if code != 0:
                print(f"log of the demo:\n{log.read_text()}")
            os.chdir("/")
    return code


def replay(program: str, demo: subprocess.Popen, first: str, banner: list[str], steps: list) -> int:
    """Compares the banner of the demo and the output of each command."""
    giving_up = threading.Timer(60, demo.kill)
    giving_up.start()
    shown, address = "", None
    for line in demo.stdout:
        shown += line
        if address := re.search(r"(http://127\.0\.0\.1:\d+)/docs", line):
            break
    giving_up.cancel()
    if address is None or missing(banner, shown):
        print(f"README, `{first}`: missing {missing(banner, shown)} in:\n{shown}")
        return 1
    os.environ["TOOLHUB_URL"] = address[1]
    for command, comment, expected in steps:
        _, *arguments = shlex.split(command)
        typed = [(match[1].rsplit("  ", 1)[-1], match[2] + "\n") for line in expected if (match := PROMPT.match(line))]
        for _ in range({"the fourth time": 4}.get(comment, 1)):
            shown, code = watch(program, typed, arguments)
        is_error = any(line.startswith("error:") for line in expected)
        if missing(expected, shown) or (code != 0) != is_error:
            print(f"README, `{command}`: exit code {code}, missing {missing(expected, shown)} in:\n{shown}")
            return 1
        print(f"README, {command}: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
