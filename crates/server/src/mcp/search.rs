//! Search mode: three tools instead of all, for hubs with more tools than a model can read.
//!
//! In: calls of these tools. Out: what is found, and how a tool is called. `call_tool` is the call of the named tool, with all its rules.

mod document;
mod index;
mod intent;
mod stem;
mod vocabulary;
mod words;

use rmcp::{
    ErrorData,
    model::{CallToolRequestParams, CallToolResult, ContentBlock, Tool},
};
use serde::Deserialize;
use serde_json::{Map, Number, Value, json};
use toolhub_core::{ErrorKind, ids::ThreadId};

pub(super) use index::SearchIndex;

use super::{request::McpRequest, result, tool_list::ToolList};

const SEARCH: &str = "search_tools";
const DESCRIBE: &str = "describe_tool";
const CALL: &str = "call_tool";
/// How many tools are found unless the caller wants another number, and at most.
const DEFAULT_FOUND: usize = 5;
const MAX_FOUND: usize = 50;
/// Largest size of a query, in bytes.
const MAX_QUERY: usize = 1_000;
/// Number of characters of a description in what is found.
const MAX_SUMMARY: usize = 300;

/// What a call in search mode is.
pub(super) enum SearchCall {
    /// It is answered.
    Answered(CallToolResult),
    /// It is the call of another tool.
    CallOf(CallToolRequestParams),
}

/// The tools of search mode.
pub(super) fn tools() -> Vec<Tool> {
    let name = json!({"type": "string", "description": "The name of a tool, as found."});
    let definitions = json!([
        {
            "name": CALL,
            "title": "Call a tool",
            "description": "Calls a tool by its name. Read its arguments with describe_tool first.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "name": name,
                    "arguments": {"type": "object", "description": "The arguments of the tool."},
                },
                "required": ["name"],
            },
        },
        {
            "name": DESCRIBE,
            "title": "Describe a tool",
            "description": "Returns the description of a tool and the JSON Schema of its arguments.",
            "inputSchema": {"type": "object", "properties": {"name": name}, "required": ["name"]},
            "annotations": {"readOnlyHint": true},
        },
        {
            "name": SEARCH,
            "title": "Find tools",
            "description": "Finds the tools that can do something, best first. Ask in a few words for one thing at a time.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "What the tool should do."},
                    "limit": {"type": "integer", "minimum": 1, "maximum": MAX_FOUND, "default": DEFAULT_FOUND},
                },
                "required": ["query"],
            },
            "annotations": {"readOnlyHint": true},
        },
    ]);
    serde_json::from_value(definitions).unwrap_or_default()
}

/// Answers a call in search mode, or says which tool it calls.
pub(super) async fn call(
    mut params: CallToolRequestParams,
    tools: &ToolList,
    request: &McpRequest,
    thread: Option<&ThreadId>,
) -> Result<SearchCall, ErrorData> {
    let arguments = Value::Object(params.arguments.take().unwrap_or_default());
    let answer = match params.name.as_ref() {
        SEARCH => match parse::<Search>(arguments) {
            Ok(search) => found(&search, tools, request, thread).await?,
            Err(refusal) => refusal,
        },
        DESCRIBE => match parse::<Named>(arguments) {
            Ok(named) => described(&named.name, tools, request, thread).await?,
            Err(refusal) => refusal,
        },
        CALL => match parse::<NamedCall>(arguments) {
            Ok(call) => {
                (params.name, params.arguments) = (call.name.into(), call.arguments);
                return Ok(SearchCall::CallOf(params));
            }
            Err(refusal) => refusal,
        },
        other => {
            let visible = tools.visible(request, thread).await?;
            let text = match visible.get(other, thread) {
                Some(_) => format!("in search mode `{other}` is called with `{CALL}`"),
                None => visible.no_tool(other),
            };
            return Err(ErrorData::invalid_params(text, None));
        }
    };
    Ok(SearchCall::Answered(answer))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Search {
    query: String,
    #[serde(default)]
    limit: Option<Number>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedCall {
    name: String,
    #[serde(default)]
    arguments: Option<Map<String, Value>>,
}

fn parse<T: serde::de::DeserializeOwned>(arguments: Value) -> Result<T, CallToolResult> {
    let unfit = |error| result::refused(ErrorKind::ArgumentsInvalid, format!("The arguments do not fit: {error}."));
    serde_json::from_value(arguments).map_err(unfit)
}

async fn found(
    search: &Search,
    tools: &ToolList,
    request: &McpRequest,
    thread: Option<&ThreadId>,
) -> Result<CallToolResult, ErrorData> {
    if search.query.len() > MAX_QUERY {
        let text = format!("The query is longer than {MAX_QUERY} bytes. Ask in a few words.");
        return Ok(result::refused(ErrorKind::ArgumentsInvalid, text));
    }
    let limit = search.limit.as_ref().map_or(Some(DEFAULT_FOUND), |limit| usize::try_from(limit.as_u64()?).ok());
    let Some(limit) = limit.filter(|limit| (1..=MAX_FOUND).contains(limit)) else {
        let text = format!("The arguments do not fit: `limit` must be an integer from 1 to {MAX_FOUND}.");
        return Ok(result::refused(ErrorKind::ArgumentsInvalid, text));
    };
    let index = tools.index().await;
    let visible = tools.visible(request, thread).await?;
    let found = index.search(&search.query, limit, |name| visible.get(name, thread).is_some());
    let found: Vec<Value> = found
        .into_iter()
        .filter_map(|name| visible.get(name, thread))
        .map(|tool| {
            let description = tool.description.as_deref().unwrap_or_default();
            json!({"name": tool.name, "description": summary(description)})
        })
        .collect();
    if found.is_empty() {
        let text = "No tool matches. Try other words, or fewer.";
        return Ok(CallToolResult::success(vec![ContentBlock::text(text)]));
    }
    Ok(CallToolResult::structured(json!({"tools": found})))
}

async fn described(
    name: &str,
    tools: &ToolList,
    request: &McpRequest,
    thread: Option<&ThreadId>,
) -> Result<CallToolResult, ErrorData> {
    let visible = tools.visible(request, thread).await?;
    Ok(match visible.get(name, thread) {
        Some(tool) => CallToolResult::structured(json!(tool)),
        None => result::refused(ErrorKind::ToolNotFound, visible.no_tool(name)),
    })
}

/// The beginning of a description.
fn summary(description: &str) -> String {
    let mut summary: String = description.chars().take(MAX_SUMMARY).collect();
    if summary.len() < description.len() {
        summary.push('…');
    }
    summary
}
