//! The tools that a client is shown.
//!
//! In: a request and its thread. Out: with a thread exactly the tools that are available in it; without one, all that are not withheld:
//! the call decides whether its dependencies have succeeded. Definitions are converted once per registration, and the list of a
//! toolset is prepared once for all callers without a thread, until a tool or its status changes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rmcp::{ErrorData, model::Tool};
use serde_json::{Value, json};
use toolhub_core::{
    Offer, OfferOptions, ToolFilter, ToolHub, ToolName, Tools, Toolset,
    export::{self, Format},
    ids::ThreadId,
    offload, suggest,
};

use super::{call::THREAD_ARGUMENT, request::McpRequest, result, search::SearchIndex};

/// How many names an unknown one is answered with.
const MAX_SUGGESTIONS: usize = 3;
/// About how long the definition of a tool is.
const TOOL_BYTES: usize = 2 << 10;
/// For how many toolsets lists are prepared.
const MAX_PREPARED: usize = 64;

/// The keyword of a schema whose value clients repeat in a header.
const HEADER_KEYWORD: &str = "x-mcp-header";

/// The tools of a hub, as MCP tools.
pub(super) struct ToolList {
    hub: ToolHub,
    converted: Mutex<Converted>,
    /// Held while the words of the tools are collected, so that it happens once.
    indexing: tokio::sync::Mutex<()>,
}

/// The converted tools of one state of the registry.
#[derive(Default)]
struct Converted {
    from: Option<Arc<Tools>>,
    tools: Arc<HashMap<ToolName, Arc<ConvertedTool>>>,
    /// The last list of each toolset, with the revision of its offer.
    prepared: HashMap<Toolset, (u64, PreparedList)>,
    /// Their words; made when they are searched first.
    index: Option<Arc<SearchIndex>>,
}

/// Tools, sorted by name.
type PreparedList = Arc<[Arc<ConvertedTool>]>;

struct ConvertedTool {
    registered: Arc<toolhub_core::Tool>,
    tool: Tool,
    /// With the argument that names a thread, if the tool needs one.
    with_thread: Option<Tool>,
    /// Whether headers repeat arguments.
    has_parameter_headers: bool,
}

impl ToolList {
    pub(super) fn new(hub: &ToolHub) -> Self {
        Self { hub: hub.clone(), converted: Mutex::default(), indexing: tokio::sync::Mutex::default() }
    }

    /// One tool.
    pub(super) fn get(&self, name: &str) -> Option<Tool> {
        self.converted().get(name).map(|entry| entry.tool.clone())
    }

    /// Whether headers repeat arguments of a tool.
    pub(super) fn has_parameter_headers(&self, name: &str) -> bool {
        self.lock_converted().tools.get(name).is_some_and(|entry| entry.has_parameter_headers)
    }

    /// At most `limit` tools for a request, by name: those after `after`.
    pub(super) async fn list(
        &self,
        request: &McpRequest,
        thread: Option<&ThreadId>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Tool>, ErrorData> {
        let tools = match self.offer(request, thread).await? {
            Some(offer) => {
                let converted = self.converted();
                offer.names().iter().filter_map(|name| converted.get(name).cloned()).collect()
            }
            None => self.prepared(&request.toolset),
        };
        let first = after.map_or(0, |after| tools.partition_point(|entry| *entry.tool.name <= *after));
        let visible = tools[first..].iter().filter(|entry| entry.is_visible(request));
        Ok(visible.take(limit).map(|entry| entry.shown(thread).clone()).collect())
    }

    /// Which tools a request may see.
    pub(super) async fn visible<'a>(
        &'a self,
        request: &'a McpRequest,
        thread: Option<&ThreadId>,
    ) -> Result<VisibleTools<'a>, ErrorData> {
        let in_thread = self.offer(request, thread).await?.map(|offer| offer.names());
        Ok(VisibleTools { hub: &self.hub, request, in_thread, converted: self.converted() })
    }

    /// What a thread is offered.
    async fn offer(&self, request: &McpRequest, thread: Option<&ThreadId>) -> Result<Option<Offer>, ErrorData> {
        let Some(thread) = thread else { return Ok(None) };
        let options = OfferOptions::from(request.toolset.clone());
        let offer = self.hub.offer_with(&request.principal.tenant, thread, &options).await;
        offer.map(Some).map_err(|error| result::fault(&error))
    }

    /// The tools of a toolset that are not withheld.
    fn prepared(&self, toolset: &Toolset) -> PreparedList {
        let offer = self.hub.shared_offer(toolset);
        let mut converted = self.lock_converted();
        let Converted { tools, prepared, .. } = &mut *converted;
        if let Some((revision, list)) = prepared.get(toolset)
            && *revision == offer.revision()
        {
            return list.clone();
        }
        let entries = offer.tools().iter().filter_map(|tool| tools.get(&tool.definition.name).cloned());
        let list: PreparedList = entries.collect();
        if prepared.len() >= MAX_PREPARED {
            prepared.clear();
        }
        prepared.insert(toolset.clone(), (offer.revision(), list.clone()));
        list
    }

    /// The words of all tools. Collecting them takes a second for thousands of tools, so nothing else waits for it.
    pub(super) async fn index(&self) -> Arc<SearchIndex> {
        let _indexing = self.indexing.lock().await;
        let tools = {
            let converted = self.lock_converted();
            if let Some(index) = &converted.index {
                return index.clone();
            }
            converted.tools.clone()
        };
        let (indexed, size) = (tools.clone(), tools.len() * TOOL_BYTES);
        let collect = move || Arc::new(SearchIndex::new(indexed.values().map(|entry| &*entry.registered)));
        let index = offload::run(size, collect).await;
        let mut converted = self.lock_converted();
        if Arc::ptr_eq(&converted.tools, &tools) {
            converted.index = Some(index.clone());
        }
        index
    }

    fn converted(&self) -> Arc<HashMap<ToolName, Arc<ConvertedTool>>> {
        self.lock_converted().tools.clone()
    }

    /// The converted tools of the registry as it is now.
    fn lock_converted(&self) -> MutexGuard<'_, Converted> {
        let current = self.hub.tools();
        let mut converted = self.converted.lock().unwrap_or_else(PoisonError::into_inner);
        if !converted.from.as_ref().is_some_and(|from| Arc::ptr_eq(from, &current)) {
            let known = |tool: &Arc<toolhub_core::Tool>| {
                let entry = converted.tools.get(&tool.definition.name)?;
                Arc::ptr_eq(&entry.registered, tool).then(|| entry.clone())
            };
            let tools = current.list(&ToolFilter::default()).into_iter();
            let tools = tools.filter_map(|tool| {
                let entry = known(&tool).or_else(|| convert(tool.clone()).map(Arc::new));
                Some((tool.definition.name.clone(), entry?))
            });
            let tools = Arc::new(tools.collect());
            *converted = Converted { from: Some(current), tools, ..Converted::default() };
        }
        converted
    }
}

impl ConvertedTool {
    /// Whether the tool is not denied to the caller.
    fn is_visible(&self, request: &McpRequest) -> bool {
        self.registered.denied_to(&request.principal.caller).is_none()
    }

    /// How it is listed for a request that names this thread.
    fn shown(&self, thread: Option<&ThreadId>) -> &Tool {
        self.with_thread.as_ref().filter(|_| thread.is_none()).unwrap_or(&self.tool)
    }
}

/// The tools that one request may see, looked up by name.
pub(super) struct VisibleTools<'a> {
    hub: &'a ToolHub,
    request: &'a McpRequest,
    /// Those that its thread is offered, sorted.
    in_thread: Option<Vec<ToolName>>,
    converted: Arc<HashMap<ToolName, Arc<ConvertedTool>>>,
}

impl VisibleTools<'_> {
    /// Says that there is no such tool, and which names are close.
    pub(super) fn no_tool(&self, name: &str) -> String {
        let names = self.converted.keys().map(ToolName::as_str).filter(|name| self.get(name, None).is_some());
        let name: String = name.chars().take(128).collect();
        let closest = suggest::closest(&name, names, MAX_SUGGESTIONS);
        let hint =
            if closest.is_empty() { String::new() } else { format!("; did you mean `{}`?", closest.join("`, `")) };
        format!("there is no tool `{name}`{hint}")
    }

    /// A tool as the request may see it, if `thread` is the one it names.
    pub(super) fn get(&self, name: &str, thread: Option<&ThreadId>) -> Option<&Tool> {
        let (name, entry) = self.converted.get_key_value(name)?;
        let is_offered = match &self.in_thread {
            Some(names) => names.binary_search(name).is_ok(),
            None => self.hub.is_in_shared_offer(&self.request.toolset, name),
        };
        (is_offered && entry.is_visible(self.request)).then(|| entry.shown(thread))
    }
}

/// A tool as MCP describes it.
fn convert(registered: Arc<toolhub_core::Tool>) -> Option<ConvertedTool> {
    let mut exported = export::export(Format::Mcp, [&registered.definition]).pop()?;
    if !result::lists_output_schema(&registered)
        && let Some(entry) = exported.as_object_mut()
    {
        entry.remove("outputSchema");
    }
    let with_thread = registered.needs_thread().then(|| with_thread_argument(exported.clone())).flatten();
    let with_thread = with_thread.and_then(|tool| serde_json::from_value(tool).ok());
    let has_parameter_headers = exported.get("inputSchema").is_some_and(|schema| has_key(schema, HEADER_KEYWORD));
    Some(ConvertedTool { tool: serde_json::from_value(exported).ok()?, with_thread, has_parameter_headers, registered })
}

/// Whether an object anywhere in the value has this key.
fn has_key(value: &Value, key: &str) -> bool {
    match value {
        Value::Object(object) => object.contains_key(key) || object.values().any(|value| has_key(value, key)),
        Value::Array(values) => values.iter().any(|value| has_key(value, key)),
        _ => false,
    }
}

/// Adds the optional argument that names a thread, unless the tool has one of that name.
fn with_thread_argument(mut tool: Value) -> Option<Value> {
    let schema = tool.get_mut("inputSchema")?.as_object_mut()?;
    let properties = schema.entry("properties").or_insert_with(|| json!({})).as_object_mut()?;
    if properties.contains_key(THREAD_ARGUMENT) {
        return None;
    }
    let description = "The conversation this call belongs to. Leave it out in the first call; the answer names it.";
    properties.insert(THREAD_ARGUMENT.into(), json!({"type": "string", "description": description}));
    Some(tool)
}
