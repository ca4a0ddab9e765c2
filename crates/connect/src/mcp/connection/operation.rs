//! The requests of the protocol that a connection sends.

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, CompleteRequest, CompleteRequestParams, GetPromptRequest,
    GetPromptRequestParams, JsonObject, ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest,
    ListToolsRequest, PaginatedRequestParams, ReadResourceRequest, ReadResourceRequestParams, SubscribeRequestParams,
    UnsubscribeRequestParams,
};

use super::InputAnswers;
use crate::mcp::list_kind::ListKind;

/// What a call asks the server for.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    CallTool { name: String, arguments: JsonObject },
    ReadResource { uri: String },
    GetPrompt { name: String, arguments: JsonObject },
    Complete(Box<CompleteRequestParams>),
}

impl Operation {
    pub(super) fn into_request(self, input: Option<InputAnswers>) -> ClientRequest {
        let (responses, state) = input.map_or((None, None), |input| (Some(input.responses), input.state));
        match self {
            Self::CallTool { name, arguments } => {
                let mut params = CallToolRequestParams::new(name).with_arguments(arguments);
                (params.input_responses, params.request_state) = (responses, state);
                CallToolRequest::new(params).into()
            }
            Self::ReadResource { uri } => {
                let mut params = ReadResourceRequestParams::new(uri);
                (params.input_responses, params.request_state) = (responses, state);
                ReadResourceRequest::new(params).into()
            }
            Self::GetPrompt { name, arguments } => {
                let mut params = GetPromptRequestParams::new(name).with_arguments(arguments);
                (params.input_responses, params.request_state) = (responses, state);
                GetPromptRequest::new(params).into()
            }
            Self::Complete(params) => CompleteRequest::new(*params).into(),
        }
    }
}

/// Asks for one page of a list.
pub(super) fn list_request(kind: ListKind, cursor: Option<String>) -> ClientRequest {
    let params = Some(PaginatedRequestParams::default().with_cursor(cursor));
    match kind {
        ListKind::Tools => ListToolsRequest { params, ..Default::default() }.into(),
        ListKind::Prompts => ListPromptsRequest { params, ..Default::default() }.into(),
        ListKind::Resources => ListResourcesRequest { params, ..Default::default() }.into(),
        ListKind::Templates => ListResourceTemplatesRequest { params, ..Default::default() }.into(),
    }
}

/// Asks for reports of changes of a resource, or for none any more.
#[allow(deprecated, reason = "only the legacy era has these requests")]
pub(super) fn watch_request(uri: &str, is_watched: bool) -> ClientRequest {
    if is_watched {
        rmcp::model::SubscribeRequest::new(SubscribeRequestParams::new(uri)).into()
    } else {
        rmcp::model::UnsubscribeRequest::new(UnsubscribeRequestParams::new(uri)).into()
    }
}
