//! What to do about each code, in a sentence or two.

/// A code that nobody has thought about yet. No such code leaves the house: a test sees to that.
pub(super) const NO_ADVICE: &str = "";

/// The advice for a code.
pub(super) fn advice_for(code: &str) -> &'static str {
    match code {
        "agent_not_found" => {
            "Name one of `suggestions`, or none for `default`. Where there are no agents, the config needs `[llm]`."
        }
        "already_resolved" => {
            "Read the approval to see how it was answered. Ask for a new one by making the call again."
        }
        "approval_denied" => "Do not repeat the call. `reason` of the approval says why it was refused.",
        "approval_not_found" => "List the approvals of this key's tenant; an answered one is kept for a while only.",
        "approval_required" => {
            "Have a person answer the approval named in `approvalId`, then make the same call again."
        }
        "approval_timeout" => "Make the call again when somebody is there to answer.",
        "arguments_invalid" => {
            "Correct what `errors` names and call again. `GET /api/v1/tools/{name}` shows the schema."
        }
        "artifact_not_found" => {
            "Make the call again: artifacts are kept for 30 days, and only their own tenant sees them."
        }
        "call_ended" => "Read the call's record: it has its outcome.",
        "call_not_found" => {
            "Check the id and the key: only a tenant's own calls are there, and records are kept for a limited time."
        }
        "cancelled" => "Somebody stopped the call. Look at `effect` before repeating it.",
        "config_invalid" => "Correct every problem in `errors` and reload again. Nothing was changed meanwhile.",
        "conflict" => "Read the thing again, and repeat the request with what is there now.",
        "crashed" => "Look at the tool's log. What it was doing may be half done.",
        "dependency_not_met" => "Call the tools in `missing` successfully in this thread first.",
        "forbidden" => "Use a key with the scope that `detail` names, or change the rule that denies the call.",
        "foreign_origin" => {
            "Requests by pages of other sites are not served. Make the request from a program, or from this server's own pages."
        }
        "grant_not_found" => "List the grants; this one was taken back already, or is another tenant's.",
        "idempotency_in_progress" => {
            "Wait for the first call to end, then send the same request again: it gets the same answer."
        }
        "idempotency_key_invalid" => "Send 1 to 255 printable ASCII characters, once, with or without quotes.",
        "idempotency_key_reused" => "Use a new key for a request that is not the same.",
        "internal" => "This is a fault of Toolhub. Look at its log for the request's id, and report it.",
        "interrupted" => "The process ended while the call ran. Look at `effect` and at the world before repeating it.",
        "invalid_json" => "Send one JSON object as the body, in UTF-8.",
        "invalid_request" => "Correct what `errors` or `detail` names. `/docs` shows what each address takes.",
        "key_not_found" => "List the keys; this one was revoked already, or stands in the config and is removed there.",
        "method_not_allowed" => "Use a method that the header `Allow` names.",
        "misdirected" => "Use an address of the server, or add the host to `server.allowed_hosts` in its config.",
        "not_acceptable" => "Ask for a form that the address gives; `/docs` lists them.",
        "not_done" => "`detail` says what failed. Correct that on the server's machine and try again.",
        "not_found" => "Check the address. `/docs` lists every one.",
        "overloaded" => "Wait as long as `Retry-After` says and try again, or raise the tool's `max_concurrency`.",
        "precondition_failed" => "Read the thing again, and repeat the request with its new `ETag`.",
        "rate_limited" => "Wait as long as `Retry-After` says.",
        "run_ended" => "Read the run: it has its end, and what the agent said.",
        "run_not_found" => {
            "Check the id and the key: only a tenant's own runs are there, and they go with their thread."
        }
        "run_open" => {
            "Wait for the end of the run in `runId`, answer what it waits for, or cancel it; then say it again."
        }
        "shutting_down" => "Try again in a moment; another process may be serving by then.",
        "state_conflict" => {
            "Read the state again, apply the change to what is there now, and write with the new `ETag` in `If-Match`."
        }
        "state_limit" => "Delete states of the thread that are not needed, or raise `state.max_states_per_session`.",
        "state_not_found" => {
            "Write the state first, or check context and kind: it may have expired, or be another tenant's."
        }
        "state_too_large" => "Store less, or raise `state.max_state_size`. Nothing was changed.",
        "state_unreadable" => {
            "Use the version of the tool that wrote the state, or roll back to a version that can be read."
        }
        "store_unavailable" => {
            "Try again in a moment. If it stays so, look at the store: its disk, its log, `/readyz?verbose`."
        }
        "thread_busy" => {
            "Cancel the run in `runId`, or the calls that run in the thread, or wait for their end; and delete it then."
        }
        "thread_not_found" => {
            "Make the thread with `POST /api/v1/threads`, or by a call that names it. Another tenant's is not there."
        }
        "timeout" => "Raise the tool's `timeout`, or find out why it is slow. It may still have had its effect.",
        "too_large" => "Send less, or raise `server.body_limit`.",
        "too_slow" => "Send the headers and the body without long pauses.",
        "tool_error" => "The tool itself failed or said no; its message tells why.",
        "tool_exists" => {
            "Choose another name, or replace the tool with PUT. One from the config file is changed there."
        }
        "tool_failed_status" => {
            "Wait as long as `Retry-After` says, or reset the tool. `GET /api/v1/tools/{name}/explain` tells why."
        }
        "tool_maintenance" => "Wait until an operator gives the tool free again.",
        "tool_not_found" => "Use one of `suggestions`, or `GET /api/v1/tools` for all names.",
        "tool_unavailable" => "`GET /api/v1/tools/{name}/explain` tells what is missing.",
        "unauthenticated" => {
            "Send `Authorization: Bearer thk_…` with a key that has not expired. `toolhub keys create` makes one."
        }
        "unsupported_media_type" => "Send the header `content-type: application/json`.",
        "upstream_error" => "Look at the service behind the tool; it answered with a failure.",
        "upstream_unreachable" => "Look at the service behind the tool, and at the network between.",
        _ => NO_ADVICE,
    }
}
