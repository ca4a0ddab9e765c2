//! Says why the parameters of a request were not understood: `rmcp` takes such a request for one of an unknown method.
//!
//! In: a request of a known method. Out: a sentence for its sender.

use rmcp::model::{
    CallToolRequestParams, CancelTaskParams, CompleteRequestParams, CustomRequest, GetPromptRequestParams,
    GetTaskParams, InitializeRequestParams, ReadResourceRequestParams, SetLevelRequestParams, UpdateTaskParams,
};
use serde::Deserialize;

/// Why the parameters of a request were not understood.
pub(in crate::mcp) fn unfit_params(request: &CustomRequest) -> String {
    let params = request.params.clone().unwrap_or_default();
    let error = match request.method.as_str() {
        "completion/complete" => CompleteRequestParams::deserialize(params).err(),
        "initialize" => InitializeRequestParams::deserialize(params).err(),
        "logging/setLevel" => SetLevelRequestParams::deserialize(params).err(),
        "prompts/get" => GetPromptRequestParams::deserialize(params).err(),
        "resources/read" => ReadResourceRequestParams::deserialize(params).err(),
        "tasks/cancel" => CancelTaskParams::deserialize(params).err(),
        "tasks/get" => GetTaskParams::deserialize(params).err(),
        "tasks/update" => UpdateTaskParams::deserialize(params).err(),
        "tools/call" => CallToolRequestParams::deserialize(params).err(),
        _ => None,
    };
    let reason = error.map(|error| format!(": {error}")).unwrap_or_default();
    format!("the parameters of `{}` do not fit{reason}", request.method)
}
