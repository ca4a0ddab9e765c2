//! Maps every failure of a call to its `ToolError`. The only file of this module that does.
//!
//! In: why there is no connection, no answer or no usable result. Out: kind, effect, and a text for operators; the model sees only what
//! the server said about this request. A request of which nothing was sent has no effect, and a read-only call none either. HTTP
//! statuses and failures of HTTP requests mean the same as for REST tools.

use std::fmt::Display;

use toolhub_core::{
    Effect, ErrorKind, ToolError,
    clock::{Clock as _, SystemClock},
    json::JsonError,
};

use super::{
    connect_error::ConnectError,
    input::MISSING_CAPABILITY,
    wire::{EndCause, HttpFailure, JsonRpcFailure, RequestError, Unsent, is_busy},
};
use crate::{command::CommandError, rest::status_error::ErrorResponse};

/// JSON-RPC error codes.
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;
/// Of the legacy era.
const RESOURCE_NOT_FOUND: i32 = -32002;
const INTERNAL_ERROR: i32 = -32603;
const INVALID_REQUEST: i32 = -32600;
const PARSE_ERROR: i32 = -32700;

/// How much of an error message of a server is passed on.
const MAX_MESSAGE_CHARS: usize = 500;

/// The error of a call that has no answer. `read_only`: the call cannot have changed anything.
pub(crate) fn request_error(error: RequestError, read_only: bool) -> ToolError {
    let effect = effect_of_failure(read_only);
    match error {
        RequestError::NotSent(Unsent::Ended(end)) => {
            let text = format!("the request had no effect, because there is no connection: {end}");
            hidden(ErrorKind::UpstreamUnreachable, text).effect(Effect::None)
        }
        RequestError::NotSent(Unsent::QueueFull) => {
            let text = "nothing was sent: the server reads its input too slowly, and too many bytes wait already";
            hidden(ErrorKind::Overloaded, text).effect(Effect::None)
        }
        RequestError::Lost(end) => {
            let kind = kind_of_end(&end.cause);
            hidden(kind, format!("the connection ended before the answer: {end}")).effect(effect)
        }
        RequestError::Refused(failure) => refused(&failure, effect),
        RequestError::Http(failure) => {
            let error = http_error(failure);
            if read_only { error.effect(Effect::None) } else { error }
        }
        RequestError::Invalid(violation) => {
            let text = format!("the server violated the MCP protocol: {violation}");
            hidden(ErrorKind::UpstreamError, text).effect(effect)
        }
    }
}

/// The error of an HTTP request without an answer.
pub(crate) fn http_error(failure: HttpFailure) -> ToolError {
    match failure {
        HttpFailure::Request { error, sent } => error.into_tool_error(sent),
        HttpFailure::Status(refused) => {
            let response = ErrorResponse { status: refused.status, headers: &refused.headers, body: &refused.body };
            let error = response.into_error(&refused.secrets, SystemClock.now(), Effect::None);
            // A server that says when to come back is not broken.
            if is_busy(refused.status) && error.retry_after.is_some() { error.uncounted() } else { error }
        }
    }
}

/// The error of a call that needed a new connection. Nothing was sent.
pub(crate) fn connect_error(error: &ConnectError) -> ToolError {
    let kind = match error {
        ConnectError::Start(CommandError::Full(_)) => ErrorKind::Overloaded,
        ConnectError::Ended(end) => kind_of_end(&end.cause),
        ConnectError::InvalidAnswer | ConnectError::Version { .. } | ConnectError::Refused(_) => {
            ErrorKind::UpstreamError
        }
        ConnectError::Http { error, .. } => error.kind,
        ConnectError::Start(_) | ConnectError::Silent(_) | ConnectError::Settings(_) | ConnectError::HttpSse { .. } => {
            ErrorKind::UpstreamUnreachable
        }
    };
    hidden(kind, format!("no connection to the MCP server: {error}")).connecting().effect(Effect::None)
}

/// The error of a call while the server is not connected.
pub(crate) fn not_connected() -> ToolError {
    let text = "the MCP server is not connected; a new connection is being made";
    hidden(ErrorKind::UpstreamUnreachable, text).connecting().effect(Effect::None)
}

/// The error of a call of one tenant too many.
pub(crate) fn too_many_tenants(max: usize) -> ToolError {
    let text = format!("{max} tenants have a connection to this MCP server already");
    hidden(ErrorKind::Overloaded, text).effect(Effect::None)
}

/// The error of a call whose arguments are none of the protocol. Nothing was sent.
pub(crate) fn invalid_arguments() -> ToolError {
    ToolError::refused("These are no valid arguments.")
}

/// The error that the tool itself reported in its result.
pub(crate) fn reported_error(text: String, read_only: bool) -> ToolError {
    ToolError::refused(text).effect(effect_of_failure(read_only))
}

/// The error of a call whose result is not as the protocol says.
pub(crate) fn invalid_result(what: impl Display, read_only: bool) -> ToolError {
    let text = format!("the MCP server's result is not valid: {what}");
    hidden(ErrorKind::UpstreamError, text).effect(effect_of_failure(read_only))
}

/// The error of a call whose result is too large to be read. It depends on the arguments, and does not count against the server.
pub(crate) fn unreadable_result(limit: &JsonError, read_only: bool) -> ToolError {
    let text = format!("The result of the tool cannot be read: {limit}. Ask for less.");
    ToolError::new(text).uncounted().effect(effect_of_failure(read_only))
}

/// The error of a call whose server did not get the input it asked for. `reason` is for the model.
pub(crate) fn input_error(reason: &impl Display, read_only: bool) -> ToolError {
    ToolError::refused(reason.to_string()).effect(effect_of_failure(read_only))
}

fn effect_of_failure(read_only: bool) -> Effect {
    if read_only { Effect::None } else { Effect::Unknown }
}

fn kind_of_end(cause: &EndCause) -> ErrorKind {
    match cause {
        EndCause::Violation(_) | EndCause::Unauthorized(_) => ErrorKind::UpstreamError,
        EndCause::Exited(_)
        | EndCause::Unreachable(_)
        | EndCause::SessionExpired
        | EndCause::ResponseEnded
        | EndCause::Unresponsive
        | EndCause::Closed => ErrorKind::UpstreamUnreachable,
    }
}

fn refused(failure: &JsonRpcFailure, effect: Effect) -> ToolError {
    let message: String = failure.message.chars().take(MAX_MESSAGE_CHARS).collect();
    let code = failure.code;
    match code {
        INVALID_PARAMS | RESOURCE_NOT_FOUND => {
            ToolError::refused(format!("The MCP server refused this request: {message}")).effect(effect)
        }
        // Says something about the caller, not about the server.
        MISSING_CAPABILITY => ToolError::refused(format!(
            "The tool needs its caller to answer input requests, which this caller cannot do: {message}"
        )),
        METHOD_NOT_FOUND => ToolError::refused(format!("The MCP server does not know this tool: {message}")),
        PARSE_ERROR | INVALID_REQUEST | INTERNAL_ERROR => {
            hidden(ErrorKind::UpstreamError, format!("the MCP server reported an error (code {code}): {message}"))
                .effect(effect)
        }
        _ => ToolError::new(format!("The MCP server reported an error (code {code}): {message}")).effect(effect),
    }
}

fn hidden(kind: ErrorKind, text: impl Into<String>) -> ToolError {
    ToolError::operator_only(kind, text)
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use hyper::{HeaderMap, StatusCode};

    use super::*;
    use crate::{
        mcp::wire::{End, RefusedResponse, Violation},
        rest::HttpError,
    };

    fn end(cause: EndCause) -> Arc<End> {
        Arc::new(cause.into())
    }

    fn failure(code: i32) -> RequestError {
        RequestError::Refused(JsonRpcFailure { code, message: "no such city".into(), data: None })
    }

    fn status(code: u16) -> RequestError {
        RequestError::Http(HttpFailure::Status(Box::new(RefusedResponse {
            status: StatusCode::from_u16(code).unwrap(),
            headers: HeaderMap::new(),
            body: b"no such city".to_vec(),
            secrets: Arc::default(),
        })))
    }

    #[track_caller]
    fn check(error: impl Fn() -> RequestError, kind: ErrorKind, effect: Effect, model: Option<&str>) {
        let read_only = request_error(error(), true);
        let error = request_error(error(), false);
        assert_eq!((error.kind, error.effect), (kind, Some(effect)), "{error}");
        assert_eq!(read_only.effect, Some(Effect::None), "{read_only}");
        assert_eq!(
            error.model.as_deref().is_some_and(|text| text.contains("no such city")),
            model.is_some(),
            "{error}"
        );
    }

    #[test]
    fn the_kind_and_the_effect_follow_from_how_far_a_request_got() {
        let broken = |sent| {
            RequestError::Http(HttpFailure::Request { error: Box::new(HttpError::Broken("reset".into())), sent })
        };
        let shown = Some("no such city");
        check(
            || RequestError::NotSent(Unsent::Ended(end(EndCause::Closed))),
            ErrorKind::UpstreamUnreachable,
            Effect::None,
            None,
        );
        check(|| RequestError::NotSent(Unsent::QueueFull), ErrorKind::Overloaded, Effect::None, None);
        check(|| RequestError::Lost(end(EndCause::Closed)), ErrorKind::UpstreamUnreachable, Effect::Unknown, None);
        check(
            || RequestError::Lost(end(EndCause::Violation(Violation::NotJson))),
            ErrorKind::UpstreamError,
            Effect::Unknown,
            None,
        );
        check(|| RequestError::Invalid(Violation::NotJson), ErrorKind::UpstreamError, Effect::Unknown, None);
        for (sent, effect) in [(true, Effect::Unknown), (false, Effect::None)] {
            check(|| broken(sent), ErrorKind::UpstreamError, effect, None);
        }
        check(|| status(503), ErrorKind::UpstreamError, Effect::Unknown, None);
        check(|| status(422), ErrorKind::ToolRefused, Effect::None, shown);
        check(|| failure(INVALID_PARAMS), ErrorKind::ToolRefused, Effect::Unknown, shown);
        check(|| failure(METHOD_NOT_FOUND), ErrorKind::ToolRefused, Effect::None, shown);
        check(|| failure(INTERNAL_ERROR), ErrorKind::UpstreamError, Effect::Unknown, None);
        check(|| failure(-32000), ErrorKind::ToolError, Effect::Unknown, shown);
        check(|| failure(MISSING_CAPABILITY), ErrorKind::ToolRefused, Effect::None, shown);
    }

    #[test]
    fn a_call_without_a_connection_has_no_effect() {
        let silent = connect_error(&ConnectError::Silent(Duration::from_secs(60)));
        assert_eq!((silent.kind, silent.effect), (ErrorKind::UpstreamUnreachable, Some(Effect::None)));
        let invalid = connect_error(&ConnectError::InvalidAnswer);
        assert_eq!((invalid.kind, invalid.effect), (ErrorKind::UpstreamError, Some(Effect::None)));
    }
    #[test]
    fn a_result_is_an_error_with_an_effect_unless_the_tool_is_read_only() {
        let check = |error: &dyn Fn(bool) -> ToolError, kind, counts, model: Option<&str>| {
            let (read_only, error) = (error(true), error(false));
            assert_eq!((error.kind, error.counts(), error.model.as_deref()), (kind, counts, model), "{error}");
            assert_eq!((error.effect, read_only.effect), (Some(Effect::Unknown), Some(Effect::None)));
        };
        let reported = |read_only| reported_error("no such city".into(), read_only);
        check(&reported, ErrorKind::ToolRefused, false, Some("no such city"));
        check(&|read_only| invalid_result("it is a list", read_only), ErrorKind::UpstreamError, true, None);
        let input = |read_only| input_error(&"The caller declined.", read_only);
        check(&input, ErrorKind::ToolRefused, false, Some("The caller declined."));
    }
}
