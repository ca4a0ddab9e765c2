//! What can go wrong on the way to an answer, and which error of the one table each of it is.
//!
//! In: what happened, and whether anything had been sent by then. Out: a [`ToolError`] with two texts: one for operators, with
//! hosts and causes, and one a model may read. Nothing that was never sent has an effect.

use std::time::Duration;

use toolhub_core::{Effect, ErrorKind, ToolError};

/// What went wrong.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// No turn came in time.
    Busy(Duration),
    /// The guard refused an address.
    Forbidden(String),
    /// A redirect that is not followed.
    Redirect(String),
    /// No connection.
    Unreachable(String),
    /// No connection in time.
    ConnectTimeout(Duration),
    /// The service takes no more bytes.
    WriteTimeout(Duration),
    /// The service says no more.
    ReadTimeout(Duration),
    /// All of it took too long.
    Timeout(Duration),
    /// What the service says is no HTTP, or ends in the middle.
    Broken(String),
    /// The answer is larger than it may be.
    TooLarge { limit: usize, decompressed: bool },
    /// What shows who we are cannot be had.
    Credentials(String),
    /// Somebody else has said it already.
    Tool(Box<ToolError>),
}

impl RequestError {
    /// The error of a call. `sent`: something of the request may have arrived.
    pub(crate) fn into_tool_error(self, sent: bool) -> ToolError {
        let effect = if sent { Effect::Unknown } else { Effect::None };
        match self {
            Self::Busy(time) => {
                hidden_error(ErrorKind::Overloaded, format!("no connection came free within {time:?}")).effect(effect)
            }
            Self::Forbidden(why) => {
                ToolError::refused("The address behind this tool may not be reached.").with_cause(why).effect(effect)
            }
            Self::Redirect(why) => {
                let text = "The service behind this tool points elsewhere, where requests may not go.";
                ToolError::refused(text).with_cause(why).effect(effect)
            }
            Self::Unreachable(why) => hidden_error(ErrorKind::UpstreamUnreachable, why).effect(effect),
            Self::ConnectTimeout(time) => {
                timeout_error(format!("no connection within {time:?}")).connecting().effect(effect)
            }
            Self::WriteTimeout(time) => timeout_error(format!("the service took no bytes for {time:?}")).effect(effect),
            Self::ReadTimeout(time) => timeout_error(format!("the service said nothing for {time:?}")).effect(effect),
            Self::Timeout(time) if sent => {
                timeout_error(format!("the request was not done within {time:?}")).effect(effect)
            }
            // Nothing had left: whoever else connects will wait as long.
            Self::Timeout(time) => {
                timeout_error(format!("nothing could be sent within {time:?}")).connecting().effect(effect)
            }
            Self::Broken(why) => hidden_error(ErrorKind::UpstreamError, why).effect(effect),
            Self::TooLarge { limit: most, decompressed: unpacked } => {
                let when = if unpacked { " when it is unpacked" } else { "" };
                // It depends on what was asked for, and says nothing against the service.
                ToolError::new(format!("The answer is larger than {most} bytes{when}. Ask for less."))
                    .uncounted()
                    .effect(Effect::Done)
            }
            Self::Credentials(why) => hidden_error(ErrorKind::UpstreamError, why).effect(effect),
            Self::Tool(error) => *error,
        }
    }
}

fn hidden_error(kind: ErrorKind, text: String) -> ToolError {
    ToolError::with_kind(kind, text).hide_from_model()
}

/// A time of the request is up. That of the call may not be.
fn timeout_error(text: String) -> ToolError {
    hidden_error(ErrorKind::Timeout, text).retryable(None)
}
