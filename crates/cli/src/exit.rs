//! Exit codes. Scripts rely on them, so they are decided only here.
//!
//! In: the stable code of an error. Out: the exit code.

use std::process::ExitCode;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command did what was asked.
    Success = 0,
    /// An unexpected error.
    Unexpected = 1,
    /// The command, its arguments or the config are invalid.
    Usage = 2,
    /// No API key, or one without the required scope.
    Auth = 3,
    /// The server, the store or the service behind a tool cannot be reached.
    Unreachable = 4,
    /// The tool ran and failed, or the requested item does not exist or has ended already.
    Failed = 5,
    /// A person or a rule denied the call, or an approval is required.
    Denied = 6,
    /// The tool was not run: withheld, waiting for a dependency, or rate limited.
    NotRun = 7,
    /// Timed out.
    Timeout = 124,
    /// Ctrl-C.
    Interrupted = 130,
}

impl Exit {
    /// The exit code of an error code. An unknown code is unexpected.
    pub(crate) fn from_code(code: &str) -> Self {
        match code {
            "usage"
            | "config_invalid"
            | "no_config"
            | "invalid_json"
            | "invalid_request"
            | "arguments_invalid"
            | "idempotency_key_invalid"
            | "idempotency_key_reused"
            | "method_not_allowed"
            | "not_acceptable"
            | "unsupported_media_type"
            | "too_large" => Self::Usage,
            "unauthenticated" | "forbidden" | "foreign_origin" | "misdirected" => Self::Auth,
            "unreachable"
            | "upstream_unreachable"
            | "model_unreachable"
            | "store_unavailable"
            | "store_in_use"
            | "shutting_down" => Self::Unreachable,
            "tool_error" | "crashed" | "upstream_error" | "interrupted" | "cancelled" | "state_conflict"
            | "state_too_large" | "state_limit" | "model_failed" | "model_refused" | "model_broken" | "max_steps"
            | "token_budget" | "run_ended" | "call_ended" => Self::Failed,
            "approval_required" | "approval_denied" | "approval_timeout" | "forbidden_by_rule" => Self::Denied,
            "tool_failed_status"
            | "tool_maintenance"
            | "tool_unavailable"
            | "dependency_not_met"
            | "rate_limited"
            | "overloaded"
            | "model_rate_limited"
            | "run_open"
            | "thread_busy"
            | "idempotency_in_progress" => Self::NotRun,
            "timeout" | "model_timeout" | "time_budget" => Self::Timeout,
            missing if missing == "not_found" || missing.ends_with("_not_found") => Self::Failed,
            _ => Self::Unexpected,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhub::ErrorKind;

    #[track_caller]
    fn check(number: u8, codes: &[&str]) {
        for code in codes {
            assert_eq!(Exit::from_code(code) as u8, number, "{code}");
        }
    }

    #[test]
    fn the_numbers_are_those_of_the_documentation() {
        check(1, &["internal", "state_unreadable", "conflict", "already_resolved", "precondition_failed", "brand_new"]);
        check(
            2,
            &["usage", "config_invalid", "no_config", "arguments_invalid", "invalid_request", "idempotency_key_reused"],
        );
        check(3, &["unauthenticated", "forbidden", "foreign_origin"]);
        check(
            4,
            &[
                "unreachable",
                "model_unreachable",
                "upstream_unreachable",
                "store_unavailable",
                "store_in_use",
                "shutting_down",
            ],
        );
        check(
            5,
            &[
                "tool_error",
                "model_failed",
                "max_steps",
                "agent_not_found",
                "run_not_found",
                "run_ended",
                "call_ended",
                "crashed",
                "upstream_error",
                "tool_not_found",
                "call_not_found",
                "not_found",
            ],
        );
        check(6, &["approval_required", "approval_denied", "approval_timeout", "forbidden_by_rule"]);
        check(
            7,
            &[
                "tool_failed_status",
                "run_open",
                "thread_busy",
                "model_rate_limited",
                "tool_maintenance",
                "dependency_not_met",
                "rate_limited",
                "overloaded",
            ],
        );
        check(124, &["timeout", "model_timeout", "time_budget"]);
    }

    #[test]
    fn every_error_of_a_call_has_its_place() {
        let unexpected: Vec<&str> = ErrorKind::TABLE
            .iter()
            .map(|row| row.name)
            .filter(|name| Exit::from_code(name) == Exit::Unexpected)
            .collect();
        assert_eq!(unexpected, ["state_unreadable", "internal"]);
    }
}
