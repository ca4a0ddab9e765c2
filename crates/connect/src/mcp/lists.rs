//! What a server lists besides tools: prompts, resources, resource templates.
//!
//! In: the entries of a list as JSON text. Out: entries for the hub, and what a person should know. Each entry is read by itself: an odd
//! one is left out alone. Texts lose hidden characters and secrets, and are cut. Pure: fetching pages and publishing is left to others.

use std::collections::{BTreeMap, btree_map::Entry};

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use toolhub_core::{
    Prompt, Resource, ResourceAnnotations, ResourceTemplate, SourceLists, SourceReaders, ToolName,
    hidden_chars::strip_hidden, offload,
};

use super::catalog::RawList;
use crate::{secret_mask::SecretMask, truncate::truncate};

/// Largest entry.
const MAX_ENTRY_BYTES: usize = 64 << 10;
/// Longest URI, pattern or name.
const MAX_NAME_BYTES: usize = 4096;
const MAX_DESCRIPTION_CHARS: usize = 8_000;
const MAX_TITLE_CHARS: usize = 120;
const MAX_ARGUMENTS: usize = 100;

/// The lists of a server besides its tools.
#[derive(Debug, Clone, Default)]
pub(super) struct ServerLists {
    pub(super) prompts: BTreeMap<String, Prompt>,
    pub(super) resources: Vec<Resource>,
    pub(super) templates: Vec<ResourceTemplate>,
    prompt_notes: Vec<String>,
    resource_notes: Vec<String>,
}

impl ServerLists {
    /// Replaces the prompts; `prefix` is that of their names in the hub.
    pub(super) async fn set_prompts(&mut self, list: RawList, prefix: &str, secrets: &SecretMask) {
        let mut reader = EntryReader::new("prompt", secrets);
        let mut prompts = BTreeMap::new();
        for mut prompt in reader.read_all::<Prompt>(list).await {
            if !reader.is_name(&prompt.name) {
                continue;
            }
            (prompt.title, prompt.description) = reader.texts(prompt.title, prompt.description);
            prompt.arguments.truncate(MAX_ARGUMENTS);
            for argument in &mut prompt.arguments {
                let texts = (argument.title.take(), argument.description.take());
                (argument.title, argument.description) = reader.texts(texts.0, texts.1);
            }
            match prompts.entry(ToolName::imported(prefix, &prompt.name).to_string()) {
                Entry::Vacant(vacant) => drop(vacant.insert(prompt)),
                Entry::Occupied(_) => reader.notes.push(format!("another prompt has the name of `{}`", prompt.name)),
            }
        }
        (self.prompts, self.prompt_notes) = (prompts, reader.notes);
    }

    /// Replaces the resources and their templates.
    pub(super) async fn set_resources(&mut self, resources: RawList, templates: RawList, secrets: &SecretMask) {
        let mut reader = EntryReader::new("resource", secrets);
        let mut all = reader.read_all::<Resource>(resources).await;
        all.retain_mut(|resource| {
            (resource.title, resource.description) = reader.texts(resource.title.take(), resource.description.take());
            resource.mime_type = reader.text(resource.mime_type.take(), MAX_TITLE_CHARS);
            resource.annotations = reader.annotations(std::mem::take(&mut resource.annotations));
            reader.is_name(&resource.uri) && reader.is_name(&resource.name)
        });
        let mut templates = reader.read_all::<ResourceTemplate>(templates).await;
        templates.retain_mut(|template| {
            (template.title, template.description) = reader.texts(template.title.take(), template.description.take());
            template.mime_type = reader.text(template.mime_type.take(), MAX_TITLE_CHARS);
            template.annotations = reader.annotations(std::mem::take(&mut template.annotations));
            reader.is_name(&template.uri_template) && reader.is_name(&template.name)
        });
        (self.resources, self.templates, self.resource_notes) = (all, templates, reader.notes);
    }

    /// What a person should know.
    pub(super) fn notes(&self) -> impl Iterator<Item = &String> {
        self.prompt_notes.iter().chain(&self.resource_notes)
    }

    /// The lists for the hub.
    pub(super) fn publish(&self, readers: SourceReaders) -> SourceLists {
        SourceLists {
            prompts: self.prompts.clone(),
            resources: self.resources.clone(),
            templates: self.templates.clone(),
            readers,
        }
    }
}

/// Reads the entries of one list.
struct EntryReader<'a> {
    noun: &'static str,
    secrets: &'a SecretMask,
    notes: Vec<String>,
}

impl<'a> EntryReader<'a> {
    fn new(noun: &'static str, secrets: &'a SecretMask) -> Self {
        Self { noun, secrets, notes: Vec::new() }
    }

    /// The entries that can be read; a large list on a blocking thread.
    async fn read_all<T: DeserializeOwned + Send + 'static>(&mut self, list: RawList) -> Vec<T> {
        self.notes.extend(list.cut.as_ref().map(ToString::to_string));
        let (count, entries) = (list.entries.len(), list.entries);
        let read = |raw: &RawValue| {
            (raw.get().len() <= MAX_ENTRY_BYTES).then(|| serde_json::from_str::<T>(raw.get()).ok()).flatten()
        };
        let read_all = move || entries.iter().filter_map(|raw| read(raw)).collect::<Vec<_>>();
        let read = offload::run(list.bytes, read_all).await;
        if read.len() < count {
            self.notes.push(format!("{} entries of a list are not valid: no {}", count - read.len(), self.noun));
        }
        read
    }

    /// Whether a URI or a name can be used. One that repeats a secret cannot: changed, it would not be found.
    fn is_name(&mut self, name: &str) -> bool {
        let is_name = (1..=MAX_NAME_BYTES).contains(&name.len()) && self.secrets.text(name) == name;
        if !is_name {
            self.notes.push(format!("a {} is left out: its name or URI is empty, too long or has a secret", self.noun));
        }
        is_name
    }

    fn texts(&self, title: Option<String>, description: Option<String>) -> (Option<String>, Option<String>) {
        (self.text(title, MAX_TITLE_CHARS), self.text(description, MAX_DESCRIPTION_CHARS))
    }

    fn text(&self, text: Option<String>, max_chars: usize) -> Option<String> {
        let clean = truncate(&strip_hidden(&self.secrets.text(text?)), max_chars);
        Some(clean).filter(|text| !text.is_empty())
    }

    fn annotations(&self, mut annotations: ResourceAnnotations) -> ResourceAnnotations {
        annotations.audience.retain(|audience| matches!(audience.as_str(), "user" | "assistant"));
        annotations.last_modified = self.text(annotations.last_modified, MAX_TITLE_CHARS);
        annotations
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::mcp::{
        catalog::{ListReader, Step},
        list_kind::ListKind,
    };

    async fn raw(kind: ListKind, entries: Value) -> RawList {
        let page = json!({ kind.member(): entries }).to_string();
        match ListReader::new(kind, 100).add(page).await.unwrap() {
            Step::Done(list) => list,
            Step::Next(..) => unreachable!(),
        }
    }

    #[tokio::test]
    async fn entries_are_read_one_by_one_and_odd_ones_are_left_out_alone() {
        let secrets = SecretMask::default();
        let mut lists = ServerLists::default();
        let prompts = json!([
            {"name": "hello", "description": "Say\u{200b} hello", "arguments": [{"name": "who", "required": true}]},
            {"name": "hello"}, {"name": ""}, 7, {"title": "no name"}, {"name": "a b"},
        ]);
        lists.set_prompts(raw(ListKind::Prompts, prompts).await, "fs", &secrets).await;
        let names: Vec<_> = lists.prompts.keys().map(|name| &name[..5]).collect();
        assert_eq!((names.as_slice(), lists.prompts.len()), (&["fs__a", "fs__h"][..], 2));
        assert_eq!(lists.prompts["fs__hello"].description.as_deref(), Some("Say hello"));
        assert!(lists.prompts["fs__hello"].arguments[0].required);
        let resources = json!([
            {"uri": "x://1", "name": "one", "size": 7, "annotations": {"audience": ["user", "odd"], "priority": 0.5}},
            {"uri": "x://2"}, {"uri": "x".repeat(5_000), "name": "long"},
        ]);
        let templates = json!([{"uriTemplate": "x://{id}", "name": "any", "mimeType": "text/plain"}, {}]);
        let templates = raw(ListKind::Templates, templates).await;
        lists.set_resources(raw(ListKind::Resources, resources).await, templates, &secrets).await;
        assert_eq!((lists.resources.len(), lists.resources[0].size, lists.templates.len()), (1, Some(7), 1));
        assert_eq!(lists.resources[0].annotations.audience, ["user"]);
        assert_eq!(lists.notes().count(), 6, "{:?}", lists.notes().collect::<Vec<_>>());
    }
}
