"""No answer is a failure of ours. A tool that is withheld is none: it was set so, or has failed too often."""
import schemathesis

WITHHELD = {"tool_failed_status", "tool_maintenance", "tool_unavailable"}


@schemathesis.check
def no_failure_of_ours(ctx, response, case):
    if response.status_code >= 500:
        try:
            code = response.json().get("code")
        except ValueError:
            code = None
        assert response.status_code == 503 and code in WITHHELD, f"answered {response.status_code} {code}"
