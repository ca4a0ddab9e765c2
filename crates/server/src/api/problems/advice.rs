//! Advice for each problem code, in a sentence or two.

/// A code without advice. A test fails if any code has none.
pub(super) const NO_ADVICE: &str = "";

/// The advice for a code.
pub(super) fn advice_for(code: &str) -> &'static str {
    match code {
        "agent_not_found" => {
            "Name one of `suggestions`, or omit it for `default`. If there are no agents, the config needs `[llm]`."
        }
        "already_resolved" => "Read the approval to see how it was decided. Make the call again to request a new one.",
        "approval_denied" => "Do not repeat the call. `reason` of the approval says why it was refused.",
        "approval_not_found" => {
            "List the approvals of this key's tenant; decided ones are stored for a limited time only."
        }
        "approval_required" => {
            "Have a person decide the approval named in `approvalId`, then make the same call again."
        }
        "approval_timeout" => "Make the call again when a person is available to approve it.",
        "arguments_invalid" => {
            "Correct what `errors` names and call again. `GET /api/v1/tools/{name}` shows the schema."
        }
        "artifact_not_found" => {
            "Make the call again: artifacts are stored for 30 days, and only their own tenant can access them."
        }
        "call_ended" => "Read the call's record: it has its outcome.",
        "call_not_found" => {
            "Check the id and the key: only the tenant's own calls are visible, and records are stored for a limited time."
        }
        "cancelled" => "The call was cancelled. Check `effect` before you repeat it.",
        "command_forbidden" => "Add the program to the config file, and reload.",
        "config_invalid" => "Correct every problem in `errors` and reload again. Nothing was changed meanwhile.",
        "conflict" => "Read the resource again, and repeat the request with its current content.",
        "crashed" => "Check the log of the tool. Its work may be incomplete.",
        "dependency_not_met" => "Call the tools in `missing` successfully in this thread first.",
        "forbidden" => "Use a key with the scope that `detail` names, or change the rule that denies the call.",
        "foreign_origin" => {
            "Requests by pages of other sites are refused. Send the request from a program, or from this server's own pages."
        }
        "grant_not_found" => "List the grants; this one was revoked already, or belongs to another tenant.",
        "idempotency_in_progress" => {
            "Wait for the first call to end, then send the same request again: it gets the same response."
        }
        "idempotency_key_invalid" => "Send 1 to 255 printable ASCII characters, once, with or without quotes.",
        "idempotency_key_reused" => "Use a new key for a different request.",
        "internal" => "This is a bug in Toolhub. Search its log for the request id, and report it.",
        "interrupted" => {
            "The process ended while the call ran. Check `effect` and the affected system before you repeat it."
        }
        "invalid_json" => "Send one JSON object as the body, in UTF-8.",
        "invalid_request" => "Correct what `errors` or `detail` names. `/docs` shows the inputs of each path.",
        "key_not_found" => {
            "List the keys; this one was revoked already, or is defined in the config and removed there."
        }
        "session_not_found" => {
            "A session of an MCP client ends when it is deleted or not used for a day, and belongs to the key that opened it. Send `initialize` \
             again."
        }
        "alert_target_not_found" => "Name one of `suggestions`; `GET /api/v1/alerts` lists the targets of the config.",
        "mcp_server_not_found" => {
            "Name one of `suggestions`; `GET /api/v1/mcp-servers` lists the servers of the config."
        }
        "method_not_allowed" => "Use a method that the header `Allow` names.",
        "misdirected" => "Use a host name of the server, or add the host to `server.allowed_hosts` in its config.",
        "not_acceptable" => "Request a media type that the path provides; `/docs` lists them.",
        "not_done" => "`detail` says what failed. Correct that on the server's machine and retry.",
        "not_found" => "Check the path. `/docs` lists all of them.",
        "overloaded" => "Wait as long as `Retry-After` says and retry, or raise the tool's `max_concurrency`.",
        "precondition_failed" => "Read the resource again, and repeat the request with its new `ETag`.",
        "rate_limited" => "Wait as long as `Retry-After` says.",
        "run_ended" => "Read the run: it has its result and the agent's answer.",
        "run_not_found" => {
            "Check the id and the key: only the tenant's own runs are visible, and they are deleted with their thread."
        }
        "run_open" => {
            "Wait for the end of the run in `runId`, provide what it waits for, or cancel it; then send the message again."
        }
        "shutting_down" => "Retry in a moment; another process may be serving by then.",
        "state_conflict" => {
            "Read the state again, apply the change to its current data, and write with the new `ETag` in `If-Match`."
        }
        "state_limit" => "Delete states of the thread that are not needed, or raise `state.max_states_per_session`.",
        "state_not_found" => {
            "Write the state first, or check context and kind: it may have expired, or belong to another tenant."
        }
        "state_too_large" => "Store less, or raise `state.max_state_size`. Nothing was changed.",
        "state_unreadable" => {
            "Use the version of the tool that wrote the state, or roll back to a version that can be read."
        }
        "store_unavailable" => {
            "Retry in a moment. If the problem persists, check the store: its disk, its log, `/readyz?verbose`."
        }
        "thread_busy" => {
            "Cancel the run in `runId`, or the calls that run in the thread, or wait for their end; then delete it."
        }
        "thread_not_found" => {
            "Create the thread with `POST /api/v1/threads`, or by a call that names it. Threads of other tenants are not visible."
        }
        "timeout" => "Raise the tool's `timeout`, or find out why it is slow. It may still have had its effect.",
        "too_large" => "Send less, or raise `server.body_limit`.",
        "too_slow" => "Send the headers and the body without long pauses.",
        "tool_error" => "The tool itself failed or refused the call; its message says why.",
        "tool_exists" => {
            "Choose another name, or replace the tool with PUT. A tool of the config file is changed there."
        }
        "tool_failed_status" => {
            "Wait as long as `Retry-After` says, or reset the tool. `GET /api/v1/tools/{name}/explain` explains the failure."
        }
        "tool_maintenance" => "Wait until an operator ends the maintenance.",
        "tool_not_found" => "Use one of `suggestions`, or `GET /api/v1/tools` for all names.",
        "tool_unavailable" => "`GET /api/v1/tools/{name}/explain` names what is missing.",
        "unauthenticated" => {
            "Send `Authorization: Bearer thk_…` with a key that has not expired. `toolhub keys create` creates one."
        }
        "unsupported_media_type" => "Send the header `content-type: application/json`.",
        "upstream_error" => "Check the service behind the tool; it answered with an error.",
        "upstream_unreachable" => "Check the service behind the tool, and the network to it.",
        _ => NO_ADVICE,
    }
}
