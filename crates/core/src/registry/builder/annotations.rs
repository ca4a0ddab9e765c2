//! What a tool says about its effects, and by which words it is found.

use serde_json::Value;

use super::ToolBuilder;
use toolhub_types::tool::Annotations;

impl ToolBuilder {
    /// The tool changes nothing: it may be repeated, run concurrently with others and in the caller's task.
    pub fn read_only(mut self) -> Self {
        self.annotations.read_only = true;
        self.annotations.destructive = false;
        self.annotations.idempotent = true;
        self
    }

    /// Calling it twice with the same arguments does no more than calling it once.
    pub fn idempotent(mut self) -> Self {
        self.annotations.idempotent = true;
        self
    }

    /// The tool only adds; it destroys nothing.
    pub fn additive(mut self) -> Self {
        self.annotations.destructive = false;
        self
    }

    /// The tool reaches nothing outside this system.
    pub fn closed_world(mut self) -> Self {
        self.annotations.open_world = false;
        self
    }

    /// A display name.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.annotations.title = Some(title.into());
        self
    }

    /// Changes the annotations in place.
    pub fn annotations(mut self, change: impl FnOnce(&mut Annotations)) -> Self {
        change(&mut self.annotations);
        self
    }

    /// Adds a tag, by which tools can be listed.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.metadata.tags.push(tag.into());
        self
    }

    /// The category of the tool.
    pub fn category(mut self, category: impl Into<String>) -> Self {
        self.metadata.category = Some(category.into());
        self
    }

    /// The tool's own version.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.metadata.version = Some(version.into());
        self
    }

    /// Adds a free metadata field.
    pub fn metadata(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.metadata.extra.insert(name.into(), value.into());
        self
    }
}
