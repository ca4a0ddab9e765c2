//! Registers the tools of a list: compares them with the approved definitions, and replaces what changed in the hub.
//!
//! In: a catalog. Out: registered tools, tools that wait for approval, and tools in quarantine, all in the status of the source.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::AtomicBool},
};

use serde_json::json;
use toolhub_core::{
    CallError, DefinitionApproval, DefinitionApprovalError, SourceHandle, SourceTool, SourceToolState, ToolBuilder,
    ToolHub, backend::StoreError,
};

use super::{
    catalog::{Catalog, ListedTool},
    executor::McpExecutor,
    pins::{NewPin, PendingDefinition, Pins, ServerMemory, UNREADABLE_PIN},
    readers,
    server::SingleTools,
    source::McpSource,
    target::Target,
};

/// How often a comparison is repeated because another node stores approvals at the same time.
const MAX_CONFLICTS: usize = 10;

/// The last list that was registered.
#[derive(Default)]
pub(super) struct Registered {
    catalog: Option<Catalog>,
    /// The approved definitions that it was compared with.
    pins: Pins,
}

/// Registers the tools of a new list.
pub(super) async fn register(source: &McpSource, handle: &SourceHandle, catalog: Catalog) -> Result<(), StoreError> {
    let mut registered = source.registering.lock().await;
    if let Some(hub) = handle.hub() {
        registered.pins = register_catalog(source, handle, &hub, &catalog).await?;
    }
    registered.catalog = Some(catalog);
    Ok(())
}

/// Registers the last list again if another node has approved definitions since.
pub(super) async fn apply_approvals(source: &McpSource, handle: &SourceHandle) -> Result<(), StoreError> {
    let mut registered = source.registering.lock().await;
    let (Some(hub), Some(catalog)) = (handle.hub(), &registered.catalog) else { return Ok(()) };
    let memory = ServerMemory::new(hub.store(), &source.server.name);
    // What was forgotten is not stored again: the server is being removed.
    if memory.load(hub.now()).await?.pins.is_some_and(|pins| pins != registered.pins) {
        registered.pins = register_catalog(source, handle, &hub, catalog).await?;
    }
    Ok(())
}

/// Approves pending definitions and registers them.
pub(super) async fn approve(
    source: &McpSource,
    handle: &SourceHandle,
    approvals: &[DefinitionApproval],
) -> Result<Vec<String>, DefinitionApprovalError> {
    let mut registered = source.registering.lock().await;
    let Some(hub) = handle.hub() else { return Ok(Vec::new()) };
    let pending = source.status().pending.clone();
    let changes: Vec<_> = pending.iter().map(PendingDefinition::change).collect();
    let names = DefinitionApproval::select(approvals, &changes)?;
    let is_chosen = |tool: &&PendingDefinition| {
        names.contains(&tool.name) && pending.iter().any(|it| it.name == tool.name && it.current == tool.current)
    };
    let memory = ServerMemory::new(hub.store(), &source.server.name);
    let mut conflicts = 0;
    loop {
        // Those that another node has approved are no longer pending.
        let still_pending = source.status().pending.clone();
        let chosen = still_pending.iter().filter(is_chosen).map(PendingDefinition::approve).collect();
        let saved = memory.save_pins(chosen, hub.now()).await;
        if let Some(catalog) = &registered.catalog {
            registered.pins = register_catalog(source, handle, &hub, catalog).await.map_err(CallError::from)?;
        }
        match saved {
            Ok(()) => return Ok(names),
            Err(StoreError::Conflict { .. }) if conflicts < MAX_CONFLICTS => conflicts += 1,
            Err(error) => return Err(CallError::from(error).into()),
        }
    }
}

/// Registers the last list with changed tools that have names of their own, without those that `old` had and that are gone.
pub(super) async fn apply_single_tools(
    source: &McpSource,
    handle: &SourceHandle,
    old: &SingleTools,
) -> Result<(), StoreError> {
    let mut registered = source.registering.lock().await;
    let registered = &mut *registered;
    let (Some(hub), Some(catalog)) = (handle.hub(), &mut registered.catalog) else { return Ok(()) };
    let new = source.single_tools();
    // With other hints of the owner, a tool is read from the next list.
    catalog.tools.retain(|tool| match old.find(&tool.name, &tool.original_name) {
        Some(old) => new.find(&tool.name, &tool.original_name).is_some_and(|new| new.has_hints_of(old)),
        None => true,
    });
    registered.pins = register_catalog(source, handle, &hub, catalog).await?;
    Ok(())
}

/// Returns the approved definitions that the list was compared with.
async fn register_catalog(
    source: &McpSource,
    handle: &SourceHandle,
    hub: &ToolHub,
    catalog: &Catalog,
) -> Result<Pins, StoreError> {
    let Compared { mut pending, pins } = compare_with_pins(source, handle, hub, catalog).await?;
    let find_pending = |tool: &ListedTool| pending.iter().find(|pending| pending.name == tool.original_name);
    let builders = catalog.tools.iter().map(|tool| {
        let changes = pins.changes(&tool.original_name);
        builder(source, tool, find_pending(tool), changes)
    });
    let readers = readers::wanted(source);
    // First those that read: a tool of the server with such a name is refused.
    let builders = readers.builders(source).into_iter().chain(builders).collect();
    let refused = handle.replace_tools(builders).await;
    let mut tools = Vec::new();
    for tool in &catalog.tools {
        let is_refused = refused.iter().find(|problem| problem.concerns(&tool.name));
        let (state, reason) = match (is_refused, find_pending(tool)) {
            (Some(problem), _) => (SourceToolState::Quarantined, Some(problem.to_string())),
            (None, Some(pending)) => {
                (SourceToolState::PendingApproval, pending.is_unreadable.then(|| UNREADABLE_PIN.into()))
            }
            (None, None) => (SourceToolState::Registered, None),
        };
        let tool_name = is_refused.is_none().then(|| tool.name.clone());
        tools.push(SourceTool { name: tool.original_name.clone(), tool_name, state, reason });
    }
    // A refused tool is not shown to the person who approves: it belongs to another source.
    let is_waiting = |tool: &SourceTool| tool.state == SourceToolState::PendingApproval;
    pending.retain(|pending| tools.iter().any(|tool| is_waiting(tool) && tool.name == pending.name));
    tools.extend(catalog.quarantined.iter().map(|tool| SourceTool {
        name: tool.original_name.clone(),
        tool_name: None,
        state: SourceToolState::Quarantined,
        reason: Some(tool.reason.clone()),
    }));
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    let mut status = source.status();
    let is_news = |tool: &&SourceTool| !status.tools.contains(tool);
    for tool in tools.iter().filter(|tool| tool.state == SourceToolState::Quarantined).filter(is_news) {
        let (server, reason) = (source.server.name.as_str(), tool.reason.as_deref());
        tracing::warn!(server, tool = tool.name, reason, "a tool of an MCP server cannot be offered");
    }
    let mut notes = notes(source, catalog);
    let readers = readers.registered(&refused, &mut notes);
    (status.tools, status.pending, status.notes, status.readers) = (tools, pending, notes, readers);
    status.publish_lists(handle);
    Ok(pins)
}

/// What a person should know about the list and its tools.
fn notes(source: &McpSource, catalog: &Catalog) -> Vec<String> {
    let names = catalog.tools.iter().map(|tool| &tool.original_name);
    let names: Vec<_> = names.chain(catalog.quarantined.iter().map(|tool| &tool.original_name)).collect();
    let unused =
        source.server.refinements.keys().filter(|name| source.catalog_options.selects(name) && !names.contains(name));
    let unused = unused.map(|name| format!("there are settings for the tool `{name}`, which the server does not have"));
    let of_tool = |tool: &ListedTool| {
        let name = tool.original_name.clone();
        tool.notes.iter().map(move |note| format!("`{name}`: {note}")).collect::<Vec<_>>()
    };
    catalog.notes.iter().cloned().chain(unused).chain(catalog.tools.iter().flat_map(of_tool)).collect()
}

/// How a list compares with the approved definitions.
#[derive(Default)]
struct Compared {
    /// The tools whose definition is not approved.
    pending: Vec<PendingDefinition>,
    pins: Pins,
}

/// Compares a list with the approved definitions. The first list of a server is approved as a whole, apart from tools whose names belong
/// to another source: these were not offered.
async fn compare_with_pins(
    source: &McpSource,
    handle: &SourceHandle,
    hub: &ToolHub,
    catalog: &Catalog,
) -> Result<Compared, StoreError> {
    if !source.server.is_pinned() {
        return Ok(Compared::default());
    }
    let memory = ServerMemory::new(hub.store(), &source.server.name);
    let single = source.single_tools();
    // The owner has asked for these by name, and sees them for the first time.
    let is_asked_for =
        |tool: &PendingDefinition| tool.is_new() && single.settings.values().any(|named| named.tool == tool.name);
    let mut conflicts = 0;
    loop {
        let remembered = memory.load(hub.now()).await?;
        let saved = match &remembered.pins {
            Some(pins) => {
                let compared = pins.pending(&source.server.name, catalog.definitions().into_iter());
                let (asked_for, pending): (Vec<_>, Vec<_>) = compared.into_iter().partition(is_asked_for);
                if asked_for.is_empty() {
                    return Ok(Compared { pending, pins: pins.clone() });
                }
                memory.save_pins(asked_for.iter().map(PendingDefinition::approve).collect(), hub.now()).await
            }
            None => {
                let own: BTreeSet<_> = catalog
                    .tools
                    .iter()
                    .filter(|tool| !handle.is_reserved(&tool.name))
                    .map(|tool| &*tool.original_name)
                    .collect();
                let first = catalog.definitions().into_iter().filter(|(name, _)| own.contains(name));
                let first = first.map(|(name, definition)| NewPin::first(name, definition)).collect();
                // Also if the connection has ended by now: otherwise a server could change its definitions by exiting.
                let era = source.status().facts.as_ref().map(|facts| facts.era);
                memory.save_first(era, first, &remembered, hub.now()).await
            }
        };
        match saved {
            Ok(()) => {}
            // Another node has seen the server at the same time, or a person has approved there.
            Err(StoreError::Conflict { .. }) if conflicts < MAX_CONFLICTS => conflicts += 1,
            Err(error) => return Err(error),
        }
    }
}

/// `changes`: how often another definition of the tool was approved. Approvals and grants of earlier ones stay void, also if a definition
/// returns.
fn builder(source: &McpSource, tool: &ListedTool, pending: Option<&PendingDefinition>, changes: u32) -> ToolBuilder {
    let server = &source.server;
    let mut implementation = server.endpoint.implementation();
    if changes > 0 {
        implementation["approvedChanges"] = changes.into();
    }
    let executor = McpExecutor {
        connections: source.connections.clone(),
        target: Target::Tool(tool.original_name.clone()),
        has_warned: AtomicBool::new(false),
    };
    let mut policy = server.policy.clone();
    // Without a word of the owner, calls of imported tools that may change something need approval.
    policy.confirm = policy.confirm.or(server.trust.then_some(false));
    policy.cache = policy.cache.filter(|_| tool.annotations.read_only);
    let builder = tool
        .builder(&server.name)
        .config(json!({"server": server.name}))
        .implementation(&implementation)
        .executor(Arc::new(executor))
        .policy(|own| *own = policy);
    let builder = match &source.connections.instances {
        Some(group) => builder.instance_group(group),
        None => builder,
    };
    let single = source.single_tools();
    let named = single.settings.get(tool.name.as_str()).map(|named| &named.refine);
    let builder = match named.or_else(|| server.refinements.get(&tool.original_name)) {
        // The owner's word counts as far as the server does not deny it.
        Some(refine) => refine(builder).annotations(|own| tool.denials.apply(&tool.annotations, own)),
        None => builder,
    };
    match pending {
        Some(pending) => {
            let name = &server.name;
            let why = if pending.is_unreadable { format!("{UNREADABLE_PIN}; ") } else { String::new() };
            builder.pending_approval(format!(
                "{why}`toolhub mcp diff {name}` shows what changed, `toolhub mcp approve {name}` accepts it"
            ))
        }
        None => builder,
    }
}
