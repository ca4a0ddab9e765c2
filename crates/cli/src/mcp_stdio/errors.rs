//! JSON-RPC errors that the bridge itself answers with.

use serde_json::{Value, json};

/// The line is not JSON.
pub(super) const PARSE_ERROR: i64 = -32700;
/// The line is not a message that can be handled.
pub(super) const INVALID_REQUEST: i64 = -32600;
/// The parameters are wrong, such as the name of a tool.
pub(super) const INVALID_PARAMS: i64 = -32602;
/// The hub cannot answer.
pub(super) const INTERNAL_ERROR: i64 = -32603;

/// An error as a line. `code_name` is the stable code of the error.
pub(super) fn error_line(id: &Value, code: i64, message: &str, code_name: Option<&str>) -> String {
    let mut error = json!({"code": code, "message": message});
    if let Some(name) = code_name {
        error["data"] = json!({"code": name});
    }
    error_answer(id, &error)
}

/// The error for a request that may have been carried out.
pub(super) fn interrupted(id: &Value, reason: &str) -> String {
    let reason = format!(
        "the connection to the hub was lost while this request was in flight; whether it was carried out is not known ({reason})"
    );
    error_line(id, INTERNAL_ERROR, &reason, Some("interrupted"))
}

/// An error object as the answer to a request.
pub(super) fn error_answer(id: &Value, error: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string()
}
