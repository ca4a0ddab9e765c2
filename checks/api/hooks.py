"""No answer is a failure of ours. A tool that is withheld is none: it was set so, or has failed too often.

What was answered how often is written to the file TOOLHUB_SEEN, so that a run which only met closed doors is noticed.
"""
import atexit
import collections
import itertools
import json
import os
import re

import schemathesis
from schemathesis.generation.meta import TestPhase

WITHHELD = {"tool_failed_status", "tool_maintenance", "tool_unavailable"}
SEEN = collections.defaultdict(collections.Counter)
NUMBERS = itertools.count()


@schemathesis.check
def no_failure_of_ours(ctx, response, case):
    if response.status_code >= 500:
        try:
            code = response.json().get("code")
        except ValueError:
            code = None
        assert response.status_code == 503 and code in WITHHELD, f"answered {response.status_code} {code}"


@schemathesis.hook
def before_call(context, case, kwargs):
    """In a story no key comes twice by chance: a repetition is answered as the first was, whatever has become of the thing since."""
    if case.meta is None or case.meta.phase.name != TestPhase.STATEFUL:
        return
    for name, value in list((case.headers or {}).items()):
        if name.lower() == "idempotency-key" and re.fullmatch(r"[!#-~]+( +[!-~]+)*", str(value)) and len(value) < 200:
            case.headers[name] = f"{value}-{next(NUMBERS)}"


@schemathesis.hook
def after_call(context, case, response):
    SEEN[case.operation.label][response.status_code] += 1


@atexit.register
def tell():
    with open(os.environ["TOOLHUB_SEEN"], "w") as file:
        json.dump(SEEN, file)
