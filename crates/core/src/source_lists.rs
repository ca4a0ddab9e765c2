//! What sources bring besides tools: prompts, resources and resource templates, merged into one list each.
//!
//! In: the lists of each source. Out: the lists of the hub with their revisions, and for each entry the call that reads it: a call of
//! an unlisted tool of its source, so that rules, limits, status and journal hold. Who watches a resource hears that it has changed.

mod merge;
mod ownership;
mod uri_template;
mod watches;

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use arc_swap::ArcSwap;
use serde_json::{Map, Value, json};
use smol_str::SmolStr;
use tokio::sync::watch;

pub(crate) use watches::{ResourceKey, ResourceWatches};

use crate::registry::Registry;
use toolhub_types::{
    resource::{Prompt, Resource, ResourceTemplate},
    tool::ToolName,
};

/// What one source brings besides tools.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SourceLists {
    /// Its prompts, by their names in the hub; the prompts have their names at the source.
    pub prompts: BTreeMap<String, Prompt>,
    /// Its resources.
    pub resources: Vec<Resource>,
    /// Its resource templates.
    pub templates: Vec<ResourceTemplate>,
    /// The tools that read them. What has no tool is not listed.
    pub readers: SourceReaders,
}

/// The unlisted tools of a source that read what it brings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceReaders {
    /// Takes `uri` and returns the result of `resources/read`.
    pub resource: Option<ToolName>,
    /// Takes `name` and `arguments` and returns the result of `prompts/get`.
    pub prompt: Option<ToolName>,
    /// Takes the parameters of `completion/complete` and returns its result.
    pub completion: Option<ToolName>,
}

/// A number for each list of the hub that grows with its changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListRevisions {
    /// Of the prompts.
    pub prompts: u64,
    /// Of the resources.
    pub resources: u64,
    /// Of the resource templates.
    pub templates: u64,
}

/// The call that reads a prompt or a resource; make it with [`ToolHub::call`](crate::ToolHub::call).
#[derive(Debug, Clone, PartialEq)]
pub struct ReadCall {
    /// An unlisted tool.
    pub tool: ToolName,
    /// Its arguments.
    pub arguments: Value,
}

/// What an argument is completed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionTarget<'a> {
    /// A prompt, by name.
    Prompt(&'a str),
    /// A resource template, by its pattern.
    ResourceTemplate(&'a str),
}

/// The prompts, resources and resource templates of all sources at one time.
///
/// A URI that two sources have belongs to the first of them, by name; that of another one is `toolhub://sources/NAME/` and the URI.
/// A source that is not connected keeps its entries; calls that read them are refused then.
#[derive(Debug, Default)]
pub struct HubLists {
    revisions: ListRevisions,
    prompts: Vec<Prompt>,
    resources: Vec<Resource>,
    templates: Vec<ResourceTemplate>,
    /// The source of each prompt.
    prompt_sources: BTreeMap<String, SmolStr>,
    /// The source of each URI and of each template.
    uri_sources: BTreeMap<String, SmolStr>,
    template_sources: BTreeMap<String, SmolStr>,
    sources: BTreeMap<SmolStr, Arc<SourceLists>>,
}

impl HubLists {
    /// The prompts, sorted by name.
    #[must_use]
    pub fn prompts(&self) -> &[Prompt] {
        &self.prompts
    }

    /// The resources, sorted by URI.
    #[must_use]
    pub fn resources(&self) -> &[Resource] {
        &self.resources
    }

    /// The resource templates, sorted by pattern.
    #[must_use]
    pub fn templates(&self) -> &[ResourceTemplate] {
        &self.templates
    }

    /// The revisions of the lists. What is made from a list can be cached by its revision.
    #[must_use]
    pub fn revisions(&self) -> ListRevisions {
        self.revisions
    }

    /// The call that reads a resource: a listed one, one that fits a template, or any if only one source has resources.
    #[must_use]
    pub fn read_resource(&self, uri: &str) -> Option<ReadCall> {
        let key = self.locate(uri)?;
        let tool = self.sources.get(&key.source)?.readers.resource.clone()?;
        Some(ReadCall { tool, arguments: json!({"uri": key.uri}) })
    }

    /// The call that makes the messages of a prompt.
    #[must_use]
    pub fn get_prompt(&self, name: &str, arguments: Map<String, Value>) -> Option<ReadCall> {
        let (original, lists) = self.find_prompt(name)?;
        let name = ("name".to_owned(), original.into());
        let arguments = Map::from_iter([name, ("arguments".to_owned(), arguments.into())]);
        Some(ReadCall { tool: lists.readers.prompt.clone()?, arguments: arguments.into() })
    }

    /// The call that completes an argument: `argument` and `context` as in the protocol.
    #[must_use]
    pub fn complete(&self, target: CompletionTarget<'_>, argument: Value, context: Option<Value>) -> Option<ReadCall> {
        let (reference, lists) = match target {
            CompletionTarget::Prompt(name) => {
                let (original, lists) = self.find_prompt(name)?;
                (json!({"type": "ref/prompt", "name": original}), lists)
            }
            CompletionTarget::ResourceTemplate(template) => {
                let source = self.template_sources.get(template)?;
                let original = merge::original_uri(source, template);
                (json!({"type": "ref/resource", "uri": original}), &**self.sources.get(source)?)
            }
        };
        let mut arguments = Map::from_iter([("ref".to_owned(), reference), ("argument".to_owned(), argument)]);
        arguments.extend(context.map(|context| ("context".to_owned(), context)));
        Some(ReadCall { tool: lists.readers.completion.clone()?, arguments: arguments.into() })
    }

    /// The source of a resource that is listed or fits a template, and its URI there.
    pub(crate) fn locate_listed(&self, uri: &str) -> Option<ResourceKey> {
        if let Some(source) = self.uri_sources.get(uri) {
            return Some(key_in(source, uri));
        }
        let fitting = self.template_sources.iter().filter(|(template, _)| {
            uri_template::matches(template, uri) && ownership::is_of_hub(template) == ownership::is_of_hub(uri)
        });
        // The most specific one, by its fixed text; of equal ones the first.
        let (_, source) =
            fitting.max_by_key(|(template, _)| (uri_template::literal_length(template), Reverse(*template)))?;
        Some(key_in(source, uri))
    }

    /// The source of a resource, and its URI there. What no source lists belongs to the only one that has resources.
    fn locate(&self, uri: &str) -> Option<ResourceKey> {
        let listed = self.locate_listed(uri);
        if listed.is_some() || ownership::is_of_hub(uri) {
            return listed;
        }
        let mut with_resources = self.sources.iter().filter(|(_, lists)| lists.readers.resource.is_some());
        match (with_resources.next(), with_resources.next()) {
            (Some((source, _)), None) => Some(key_in(source, uri)),
            _ => None,
        }
    }

    fn find_prompt(&self, name: &str) -> Option<(&str, &SourceLists)> {
        let lists = self.sources.get(self.prompt_sources.get(name)?)?;
        lists.prompts.get(name).map(|prompt| (prompt.name.as_str(), &**lists))
    }
}

fn key_in(source: &SmolStr, uri: &str) -> ResourceKey {
    ResourceKey { source: source.clone(), uri: merge::original_uri(source, uri).into() }
}

/// Says when a list has changed; see [`ToolHub::watch_lists`](crate::ToolHub::watch_lists).
#[derive(Debug, Clone)]
pub struct HubListsWatch(watch::Receiver<ListRevisions>);

impl HubListsWatch {
    /// Waits for a change; returns the revisions after it, or `None` when the hub is gone. Several changes that were not waited for
    /// are one.
    pub async fn changed(&mut self) -> Option<ListRevisions> {
        self.0.changed().await.ok()?;
        Some(*self.0.borrow_and_update())
    }
}

/// The lists of all sources.
#[derive(Default)]
pub(crate) struct SourceListTable {
    by_source: Mutex<BTreeMap<SmolStr, Arc<SourceLists>>>,
    merged: ArcSwap<HubLists>,
    revisions: watch::Sender<ListRevisions>,
    pub(crate) watches: ResourceWatches,
}

impl SourceListTable {
    pub(crate) fn current(&self) -> Arc<HubLists> {
        self.merged.load_full()
    }

    pub(crate) fn watch(&self) -> HubListsWatch {
        HubListsWatch(self.revisions.subscribe())
    }

    /// Replaces the lists of a source. Returns what is left out, and why.
    pub(crate) fn replace(&self, source: &SmolStr, mut lists: SourceLists, registry: &Registry) -> Vec<String> {
        // Under the lock, so that names that are declared meanwhile are noticed here or in `remove_misplaced`.
        let mut by_source = self.lock();
        let left_out = ownership::remove_foreign(source, &mut lists, registry);
        if by_source.get(source).is_none_or(|before| **before != lists) {
            by_source.insert(source.clone(), Arc::new(lists));
            self.publish(&by_source);
        }
        left_out
    }

    /// Removes the lists of a source.
    pub(crate) fn remove(&self, source: &SmolStr) {
        let mut by_source = self.lock();
        if by_source.remove(source).is_some() {
            self.publish(&by_source);
        }
    }

    /// Removes what belongs to another source by now.
    pub(crate) fn remove_misplaced(&self, registry: &Registry) {
        let mut by_source = self.lock();
        let mut is_changed = false;
        for (source, lists) in by_source.iter_mut() {
            let mut own = SourceLists::clone(lists);
            if !ownership::remove_foreign(source, &mut own, registry).is_empty() {
                *lists = Arc::new(own);
                is_changed = true;
            }
        }
        if is_changed {
            self.publish(&by_source);
        }
    }

    fn publish(&self, by_source: &BTreeMap<SmolStr, Arc<SourceLists>>) {
        let merged = merge::merge(by_source, &self.merged.load());
        let revisions = merged.revisions;
        self.merged.store(Arc::new(merged));
        // Still under the lock, so that the revisions never go back.
        self.revisions.send_if_modified(|current| std::mem::replace(current, revisions) != revisions);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SmolStr, Arc<SourceLists>>> {
        self.by_source.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
