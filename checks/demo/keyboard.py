"""Drives the demo on a real terminal.

In: the program, as the first argument. Out: a line for each kind of answer; exit code 1 at the first failure.
Needs nothing but python.
"""

import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from terminal import END_OF_INPUT, INTERRUPT, play, watch, wrong_with  # noqa: E402

PROMPT = "[y] once  [t] thread  [a] always  [e] edit  [n] deny  [?]"
ARGUMENTS = "key=value to change, or all arguments as JSON; Enter to go back:"

# Typed input by prompt, expected output, output that must not appear, and the exit code.
CASES = [
    ("a yes for once", [(PROMPT, "y\n")], ["answered by: you", "/tmp/old is deleted", "What next"], ["/tmp/older"], 0),
    ("a yes for the thread", [(PROMPT, "t\n")], ["/tmp/older is deleted", '"scope":"thread"'], [], 0),
    ("a yes for good", [(PROMPT, "a\n")], ["/tmp/older is deleted", '"scope":"tool"'], [], 0),
    ("a no with a reason", [(PROMPT, "n not today\n")], ["A person refused this call: not today"], ["is deleted"], 0),
    (
        "mistakes, then an edit",
        [
            (PROMPT, "maybe\n"),
            (PROMPT, "?\n"),
            (PROMPT, "e\n"),
            (ARGUMENTS, "{folder\n"),
            (PROMPT, 'e {"folder": 3}\n'),
            (PROMPT, 'e {"folder": "/"}\n'),
            (PROMPT, "e\n"),
            (ARGUMENTS, "\n"),
            (PROMPT, "e\n"),
            (ARGUMENTS, '{"folder": "/tmp/new"}\n'),
        ],
        [
            "`maybe` is not one of the answers",
            "y  yes, this once",
            "that is neither key=value nor JSON",
            "folder: expected a string",
            "deleting the root folder is never allowed",
            "/tmp/new is deleted",
            "A person changed the arguments",
        ],
        ["/tmp/old is deleted"],
        0,
    ),
    ("the end of input", [(PROMPT, END_OF_INPUT)], ["no answer: end of input", "What next"], ["is deleted"], 0),
    ("the end of input in an edit", [(PROMPT, "e\n"), (ARGUMENTS, END_OF_INPUT)], ["no answer: end of input"], ["is deleted"], 0),
    ("an interrupt", [(PROMPT, INTERRUPT)], ["The tour was interrupted"], ["is deleted", "What next", "panicked"], 130),
]


TOUR = ["demo", "--tour"]


def main() -> int:
    program = str(pathlib.Path(sys.argv[1]).resolve())

    def case(typed: list[tuple[str, str]], *expected: object) -> list[str]:
        shown, ended = watch(program, typed, TOUR)
        # The output before the first prompt is the same in all cases.
        return wrong_with(shown[shown.index(PROMPT):], ended, *expected)

    cases = [(name, lambda rest=rest: case(*rest)) for name, *rest in CASES]
    return play("at the keyboard", cases, {})


if __name__ == "__main__":
    sys.exit(main())
