//! The tools that a client is shown.
//!
//! In: a request and its thread. Out: with a thread exactly the tools that are available in it; without one, all that are not withheld:
//! the call decides whether its dependencies have succeeded. Definitions are converted once per registration.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rmcp::{ErrorData, model::Tool};
use serde_json::{Value, json};
use toolhub_core::{
    Kind, OfferOptions, SharedOffer, ToolFilter, ToolHub, ToolName, Tools,
    export::{self, Format},
    ids::{Caller, ThreadId},
    suggest,
};

use super::{call::THREAD_ARGUMENT, request::McpRequest, result, search::SearchIndex};

/// How many names an unknown one is answered with.
const MAX_SUGGESTIONS: usize = 3;

/// The tools of a hub, as MCP tools.
pub(super) struct ToolList {
    hub: ToolHub,
    converted: Mutex<Converted>,
}

/// The converted tools of one state of the registry.
#[derive(Default)]
struct Converted {
    from: Option<Arc<Tools>>,
    tools: Arc<HashMap<ToolName, ConvertedTool>>,
    /// Their words; made when they are searched first.
    index: Option<Arc<SearchIndex>>,
}

#[derive(Clone)]
struct ConvertedTool {
    registered: Arc<toolhub_core::Tool>,
    tool: Tool,
    /// With the argument that names a thread, if the tool needs one.
    with_thread: Option<Tool>,
}

impl ToolList {
    pub(super) fn new(hub: &ToolHub) -> Self {
        Self { hub: hub.clone(), converted: Mutex::default() }
    }

    /// One tool.
    pub(super) fn get(&self, name: &str) -> Option<Tool> {
        self.converted().get(name).map(|entry| entry.tool.clone())
    }

    /// What a request may see.
    pub(super) async fn visible<'a>(
        &self,
        request: &'a McpRequest,
        thread: Option<&ThreadId>,
    ) -> Result<VisibleTools<'a>, ErrorData> {
        let tenant = &request.principal.tenant;
        let offered = match thread {
            Some(thread) => {
                let options = OfferOptions::from(request.toolset.clone());
                let offer =
                    self.hub.offer_with(tenant, thread, &options).await.map_err(|error| result::fault(&error))?;
                Offered::InThread(offer.names())
            }
            None => Offered::Shared(self.hub.shared_offer(&request.toolset)),
        };
        Ok(VisibleTools { offered, converted: self.converted(), caller: &request.principal.caller })
    }

    /// The tools for a request, by name.
    pub(super) async fn list(&self, request: &McpRequest, thread: Option<&ThreadId>) -> Result<Vec<Tool>, ErrorData> {
        let visible = self.visible(request, thread).await?;
        Ok(visible
            .entries()
            .map(|entry| match (&entry.with_thread, thread) {
                (Some(tool), None) => tool.clone(),
                _ => entry.tool.clone(),
            })
            .collect())
    }

    /// The words of all tools.
    pub(super) fn index(&self) -> Arc<SearchIndex> {
        let mut converted = self.lock_converted();
        let Converted { tools, index, .. } = &mut *converted;
        index.get_or_insert_with(|| Arc::new(SearchIndex::new(tools.values().map(|entry| &*entry.registered)))).clone()
    }

    /// Says that there is no such tool, and which names of the address are close.
    pub(super) fn closest(&self, request: &McpRequest, name: &str) -> String {
        let tools = self.hub.list(&ToolFilter::default());
        let names = tools.iter().map(|tool| tool.definition.name.as_str());
        let names = names.filter(|name| request.toolset.contains(name));
        let name: String = name.chars().take(128).collect();
        let closest = suggest::closest(&name, names, MAX_SUGGESTIONS);
        let hint =
            if closest.is_empty() { String::new() } else { format!("; did you mean `{}`?", closest.join("`, `")) };
        format!("there is no tool `{name}`{hint}")
    }

    fn converted(&self) -> Arc<HashMap<ToolName, ConvertedTool>> {
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
            let tools =
                tools.filter_map(|tool| Some((tool.definition.name.clone(), known(&tool).or_else(|| convert(tool))?)));
            converted.tools = Arc::new(tools.collect());
            (converted.from, converted.index) = (Some(current), None);
        }
        converted
    }
}

/// The tools that one request may see.
pub(super) struct VisibleTools<'a> {
    offered: Offered,
    converted: Arc<HashMap<ToolName, ConvertedTool>>,
    caller: &'a Caller,
}

/// Tools that are not withheld, sorted by name.
enum Offered {
    Shared(SharedOffer),
    InThread(Vec<ToolName>),
}

impl VisibleTools<'_> {
    pub(super) fn contains(&self, name: &ToolName) -> bool {
        let is_offered = match &self.offered {
            Offered::Shared(offer) => offer.get(name).is_some(),
            Offered::InThread(names) => names.binary_search(name).is_ok(),
        };
        is_offered && self.entry(name).is_some()
    }

    /// The visible tools, by name.
    fn entries(&self) -> impl Iterator<Item = &ConvertedTool> {
        let (shared, in_thread) = match &self.offered {
            Offered::Shared(offer) => (offer.tools(), &[][..]),
            Offered::InThread(names) => (&[][..], names.as_slice()),
        };
        let names = shared.iter().map(|tool| &tool.definition.name).chain(in_thread);
        names.filter_map(|name| self.entry(name))
    }

    /// A tool, unless it is denied to the caller.
    fn entry(&self, name: &ToolName) -> Option<&ConvertedTool> {
        self.converted.get(name).filter(|entry| entry.registered.denied_to(self.caller).is_none())
    }
}

/// A tool as MCP describes it.
fn convert(registered: Arc<toolhub_core::Tool>) -> Option<ConvertedTool> {
    let mut exported = export::export(Format::Mcp, [&registered.definition]).pop()?;
    // Clients refuse every answer without structured content that fits it. The outputs of other people's services pass as they are.
    if (registered.definition.origin.is_some() || registered.definition.kind == Kind::Rest)
        && let Some(entry) = exported.as_object_mut()
    {
        entry.remove("outputSchema");
    }
    let with_thread = registered.needs_thread().then(|| with_thread_argument(exported.clone())).flatten();
    let with_thread = with_thread.and_then(|tool| serde_json::from_value(tool).ok());
    Some(ConvertedTool { tool: serde_json::from_value(exported).ok()?, with_thread, registered })
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
