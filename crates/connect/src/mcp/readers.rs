//! The unlisted tools that read the prompts and resources of a server.
//!
//! In: what the owner of the hub asked for, and what the server has. Out: tools to register with those of the server, and which of
//! them were registered. Their calls are like those of other tools, so that rules, limits, status and journal hold.

use std::sync::{Arc, atomic::AtomicBool};

use serde_json::{Value, json};
use toolhub_core::{Kind, Policy, RegistryError, SourceReaders, ToolBuilder, ToolName};

use super::{executor::McpExecutor, source::McpSource, target::Target};

/// The tools that are wanted.
pub(super) struct WantedReaders(SourceReaders);

/// Which tools the owner and the server make useful.
pub(super) fn wanted(source: &McpSource) -> WantedReaders {
    let (has_resources, has_prompts, completes) = {
        let status = source.status();
        let facts = status.facts.as_ref();
        (
            source.server.resources && facts.is_some_and(|facts| facts.resources.is_there),
            source.server.prompts && facts.is_some_and(|facts| facts.prompts.is_there),
            facts.is_some_and(|facts| facts.completes),
        )
    };
    let prefix = match source.server.tool_prefix() {
        "" => &source.server.name,
        prefix => prefix,
    };
    let named = |is_wanted: bool, name: &str| is_wanted.then(|| ToolName::imported(prefix, name));
    WantedReaders(SourceReaders {
        resource: named(has_resources, "resources-read"),
        prompt: named(has_prompts, "prompts-get"),
        completion: named(completes && (has_resources || has_prompts), "completion-complete"),
    })
}

impl WantedReaders {
    pub(super) fn builders(&self, source: &McpSource) -> Vec<ToolBuilder> {
        let SourceReaders { resource, prompt, completion } = &self.0;
        let text = || json!({"type": "string"});
        let uri = json!({"type": "object", "properties": {"uri": text()}, "required": ["uri"]});
        let named = json!({
            "type": "object",
            "properties": {"name": text(), "arguments": {"type": "object", "additionalProperties": text()}},
            "required": ["name"],
        });
        let completed = json!({
            "type": "object",
            "properties": {
                "ref": {"type": "object"},
                "argument": {
                    "type": "object",
                    "properties": {"name": text(), "value": text()},
                    "required": ["name", "value"],
                },
                "context": {"type": "object"},
            },
            "required": ["ref", "argument"],
        });
        let all = [
            (resource, Target::Resource, "Reads a resource of the server.", uri),
            (prompt, Target::Prompt, "Makes the messages of a prompt of the server.", named),
            (completion, Target::Completion, "Completes an argument of a prompt or resource of the server.", completed),
        ];
        let wanted = all.into_iter().filter_map(|(name, target, description, parameters)| {
            let name = name.as_ref()?;
            Some(builder(source, name, target, parameters).description(description))
        });
        wanted.collect()
    }

    /// Those that were registered; adds a note about each other one.
    pub(super) fn registered(self, refused: &[RegistryError], notes: &mut Vec<String>) -> SourceReaders {
        let mut registered = |name: Option<ToolName>| {
            let name = name?;
            let Some(problem) = refused.iter().find(|problem| problem.concerns(&name)) else { return Some(name) };
            notes.push(format!("its prompts or resources cannot be read: {problem}"));
            None
        };
        let SourceReaders { resource, prompt, completion } = self.0;
        SourceReaders { resource: registered(resource), prompt: registered(prompt), completion: registered(completion) }
    }
}

fn builder(source: &McpSource, name: &ToolName, target: Target, parameters: Value) -> ToolBuilder {
    let server = &source.server;
    let executor = McpExecutor { connections: source.connections.clone(), target, has_warned: AtomicBool::new(false) };
    // What is read may change at any time, and subscribers hear of it.
    let policy = Policy { cache: None, ..server.policy.clone() };
    let builder = ToolBuilder::new(name.as_str(), Kind::Mcp)
        .parameters(parameters)
        .read_only()
        .unlisted()
        .origin(&server.name, name.as_str())
        .config(json!({"server": server.name}))
        .implementation(&server.endpoint.implementation())
        .executor(Arc::new(executor))
        .policy(|own| *own = policy);
    match &source.connections.instances {
        Some(group) => builder.instance_group(group),
        None => builder,
    }
}
