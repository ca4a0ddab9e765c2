//! Maps failures of connections and requests to the `ToolError` of a call. The only place that does.
//!
//! In: a [`RequestError`] or a [`ConnectError`]. Out: kind, effect, and a text for operators; the model sees only what the server
//! said about this request. A request of which nothing was sent has no effect. Results with `isError` are mapped where results
//! are read.

use toolhub_core::{Effect, ErrorKind, ToolError};

use super::{
    connection::ConnectError,
    wire::{EndCause, JsonRpcFailure, RequestError, Unsent},
};
use crate::command::CommandError;

/// JSON-RPC error codes.
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;
const INTERNAL_ERROR: i32 = -32603;
const INVALID_REQUEST: i32 = -32600;
const PARSE_ERROR: i32 = -32700;

/// How much of an error message of a server is passed on.
const MAX_MESSAGE_CHARS: usize = 500;

/// The error of a call. `read_only`: the call cannot have changed anything.
pub(crate) fn request_error(error: RequestError, read_only: bool) -> ToolError {
    let effect = if read_only { Effect::None } else { Effect::Unknown };
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
        RequestError::Http { error, sent } => {
            let error = error.into_tool_error(sent);
            if read_only { error.effect(Effect::None) } else { error }
        }
        RequestError::Invalid(violation) => {
            let text = format!("the server violated the MCP protocol: {violation}");
            hidden(ErrorKind::UpstreamError, text).effect(effect)
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
        INVALID_PARAMS => ToolError::refused(format!("The MCP server refused this request: {message}")).effect(effect),
        METHOD_NOT_FOUND => ToolError::refused(format!("The MCP server does not know this tool: {message}")),
        PARSE_ERROR | INVALID_REQUEST | INTERNAL_ERROR => {
            hidden(ErrorKind::UpstreamError, format!("the MCP server reported an error (code {code}): {message}"))
                .effect(effect)
        }
        _ => ToolError::new(format!("The MCP server reported an error (code {code}): {message}")).effect(effect),
    }
}

fn hidden(kind: ErrorKind, text: impl Into<String>) -> ToolError {
    ToolError::with_kind(kind, text).hide_from_model()
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{
        mcp::wire::{End, Violation},
        rest::HttpError,
    };

    fn end(cause: EndCause) -> Arc<End> {
        Arc::new(cause.into())
    }

    fn failure(code: i32) -> RequestError {
        RequestError::Refused(JsonRpcFailure { code, message: "no such city".into(), data: None })
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
        let broken = || Box::new(HttpError::Broken("reset".into()));
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
            check(|| RequestError::Http { error: broken(), sent }, ErrorKind::UpstreamError, effect, None);
        }
        check(|| failure(INVALID_PARAMS), ErrorKind::ToolRefused, Effect::Unknown, shown);
        check(|| failure(METHOD_NOT_FOUND), ErrorKind::ToolRefused, Effect::None, shown);
        check(|| failure(INTERNAL_ERROR), ErrorKind::UpstreamError, Effect::Unknown, None);
        check(|| failure(-32000), ErrorKind::ToolError, Effect::Unknown, shown);
    }

    #[test]
    fn a_call_without_a_connection_has_no_effect() {
        let silent = connect_error(&ConnectError::Silent(Duration::from_secs(60)));
        assert_eq!((silent.kind, silent.effect), (ErrorKind::UpstreamUnreachable, Some(Effect::None)));
        let invalid = connect_error(&ConnectError::InvalidAnswer);
        assert_eq!((invalid.kind, invalid.effect), (ErrorKind::UpstreamError, Some(Effect::None)));
    }
}
