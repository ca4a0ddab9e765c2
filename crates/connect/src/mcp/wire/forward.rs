//! What `rmcp` has to see of answers.
//!
//! In: an answer and its request. Out: the message for `rmcp`. The answer itself goes directly to the exchange that waits for it; only
//! requests of `rmcp` itself are answered through it.

use rmcp::model::{
    CustomResult, ErrorCode, ErrorData, JsonRpcMessage, ListToolsResult, RequestId, ServerJsonRpcMessage, ServerResult,
};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{
    exchange::RequestError,
    message::{JsonRpcFailure, Violation},
    notification::read,
    pending::{InFlight, is_direct},
};

/// Maximum size of the messages that `rmcp` reads, which takes many times their size in memory.
const MAX_TYPED_BYTES: usize = 512 * 1024;
/// Maximum size of a list that `rmcp` sees.
const MAX_SHOWN_LIST_BYTES: usize = 2 * 1024 * 1024;

/// What became of a message of a server.
pub(crate) enum Received {
    /// `rmcp` has to see this.
    Forward(Box<ServerJsonRpcMessage>),
    /// It was the answer to a request that `rmcp` does not know.
    Answer,
    Other,
}

pub(super) fn answered((id, request): (i64, InFlight), result: &RawValue, text: &str) -> Result<Received, Violation> {
    let forwarded = match request.exchange {
        Some(exchange) => {
            exchange.complete(Ok(result.get().to_owned()));
            if is_direct(id) {
                return Ok(Received::Answer);
            }
            if request.is_shown_list { tool_list(id, result) } else { placeholder(id) }
        }
        None => typed(text)?,
    };
    Ok(Received::Forward(Box::new(forwarded)))
}

pub(super) fn refused((id, request): (i64, InFlight), failure: JsonRpcFailure) -> Received {
    Received::Forward(Box::new(match request.exchange {
        Some(exchange) => {
            exchange.complete(Err(RequestError::Refused(failure)));
            if is_direct(id) {
                return Received::Answer;
            }
            placeholder(id)
        }
        None => {
            let error = ErrorData::new(ErrorCode(failure.code), failure.message, failure.data);
            JsonRpcMessage::error(error, Some(RequestId::Number(id)))
        }
    }))
}

/// Makes `rmcp` forget a request whose answer went directly to its caller.
fn placeholder(id: i64) -> ServerJsonRpcMessage {
    let nothing = ServerResult::CustomResult(CustomResult(Value::Null));
    JsonRpcMessage::response(nothing, RequestId::Number(id))
}

/// The tools of a list that `rmcp` can read.
fn tool_list(id: i64, result: &RawValue) -> ServerJsonRpcMessage {
    #[derive(Deserialize)]
    struct ToolPage {
        tools: Vec<Value>,
    }
    let page = read::<ToolPage>(Some(result.get()).filter(|text| text.len() <= MAX_SHOWN_LIST_BYTES));
    let Some(page) = page else { return placeholder(id) };
    let tools = page.tools.into_iter().filter_map(|tool| serde_json::from_value(tool).ok());
    let list = ListToolsResult::with_all_items(tools.collect());
    JsonRpcMessage::response(ServerResult::ListToolsResult(list), RequestId::Number(id))
}

/// A message as `rmcp` reads it.
pub(super) fn typed(text: &str) -> Result<ServerJsonRpcMessage, Violation> {
    if text.len() > MAX_TYPED_BYTES {
        return Err(Violation::NotAMessage("it has more than 512 KiB, and is not the answer to a call or a list"));
    }
    serde_json::from_str(text).map_err(|_| Violation::NotAMessage("its members have the wrong type"))
}
