"""No response is an internal error. A withheld tool is not one: its status was set so, or it has failed too often.

The number of responses by status is written to the file TOOLHUB_SEEN, so that a run in which everything was refused is noticed.
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
def no_internal_error(ctx, response, case):
    if response.status_code >= 500:
        try:
            code = response.json().get("code")
        except ValueError:
            code = None
        assert response.status_code == 503 and code in WITHHELD, f"answered {response.status_code} {code}"


@schemathesis.hook
def before_call(context, case, kwargs):
    """Makes keys unique in stateful runs: a repeated key would replay the first response, whatever happened since."""
    if case.meta is None or case.meta.phase.name != TestPhase.STATEFUL:
        return
    for name, value in list((case.headers or {}).items()):
        if name.lower() == "idempotency-key" and re.fullmatch(r"[!#-~]+( +[!-~]+)*", str(value)) and len(value) < 200:
            case.headers[name] = f"{value}-{next(NUMBERS)}"


@schemathesis.hook
def after_call(context, case, response):
    SEEN[case.operation.label][response.status_code] += 1


@atexit.register
def write_counts():
    with open(os.environ["TOOLHUB_SEEN"], "w") as file:
        json.dump(SEEN, file)
