//! Failures of a request before its response was read, and their mapping to a [`ToolError`].
//!
//! In: the failure, and whether any byte had been sent. Out: a [`ToolError`] with two texts: one for operators, with hosts and causes,
//! and one for the model. A request of which nothing was sent has no effect.

use std::time::Duration;

use toolhub_core::{Effect, ErrorKind, ToolError};
use toolhub_net::PermitTimeout;

/// Why a request failed.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// The pool had no free permit in time.
    Busy(Duration),
    /// The address guard refused the address.
    Forbidden(String),
    /// A redirect was refused.
    Redirect(String),
    /// The connection failed.
    Unreachable(String),
    /// The connection was not established in time.
    ConnectTimeout(Duration),
    /// The service stopped reading the request.
    WriteTimeout(Duration),
    /// The service stopped sending the response.
    ReadTimeout(Duration),
    /// The request as a whole took too long.
    Timeout(Duration),
    /// The response is not valid HTTP, or incomplete.
    Broken(String),
    /// The response exceeds its size limit.
    TooLarge { limit: usize, decompressed: bool },
    /// The credentials are not available.
    Credentials(String),
    /// The error is already complete.
    Tool(Box<ToolError>),
}

impl RequestError {
    /// The error of the call. `sent`: part of the request may have arrived.
    pub(crate) fn into_tool_error(self, sent: bool) -> ToolError {
        let effect = if sent { Effect::Unknown } else { Effect::None };
        match self {
            Self::Busy(time) => hidden_error(ErrorKind::Overloaded, PermitTimeout(time).to_string()).effect(effect),
            Self::Forbidden(reason) => {
                let error = ToolError::refused("The address behind this tool may not be reached.").effect(effect);
                ToolError { operator: format!("address refused: {reason}"), ..error }
            }
            Self::Redirect(reason) => {
                let text = "The service behind this tool redirects to an address that may not be reached.";
                ToolError { operator: format!("redirect refused: {reason}"), ..ToolError::refused(text).effect(effect) }
            }
            Self::Unreachable(reason) => hidden_error(ErrorKind::UpstreamUnreachable, reason).effect(effect),
            Self::ConnectTimeout(time) => {
                timeout_error(format!("connect timeout: no connection within {time:?}")).connecting().effect(effect)
            }
            Self::WriteTimeout(time) => {
                timeout_error(format!("write timeout: the service accepted no bytes for {time:?}")).effect(effect)
            }
            Self::ReadTimeout(time) => {
                timeout_error(format!("read timeout: the service sent no bytes for {time:?}")).effect(effect)
            }
            Self::Timeout(time) if sent => {
                timeout_error(format!("request timeout: not completed within {time:?}")).effect(effect)
            }
            // Nothing was sent: other calls will wait for a connection as long, so this counts as a failure to connect.
            Self::Timeout(time) => timeout_error(format!("request timeout: nothing could be sent within {time:?}"))
                .connecting()
                .effect(effect),
            Self::Broken(reason) => hidden_error(ErrorKind::UpstreamError, reason).effect(effect),
            Self::TooLarge { limit, decompressed } => {
                let when = if decompressed { " after decompression" } else { "" };
                // It depends on the arguments, and does not count against the service.
                ToolError::new(format!("The response is larger than {limit} bytes{when}. Ask for less."))
                    .uncounted()
                    .effect(Effect::Done)
            }
            Self::Credentials(reason) => hidden_error(ErrorKind::UpstreamError, reason).effect(effect),
            Self::Tool(error) => *error,
        }
    }
}

fn hidden_error(kind: ErrorKind, text: String) -> ToolError {
    ToolError::with_kind(kind, text).hide_from_model()
}

/// A timeout of the request. The call itself may have time left, so it can be retried.
fn timeout_error(text: String) -> ToolError {
    hidden_error(ErrorKind::Timeout, text).retryable(None)
}
