//! Which names of tools belong to which source.
//!
//! In: the sources and the patterns of the names they may add. Out: the one source that may add a name: that of the most specific
//! pattern, whichever source is connected first. A source cannot take names from another by listing tools named like those of the other.

use std::collections::{HashMap, hash_map::Entry};

use smol_str::SmolStr;

use super::Tools;
use toolhub_types::{policy::Glob, tool::ToolName};

/// The names that sources may add, by source.
#[derive(Debug, Clone, Default)]
pub(super) struct SourceNames(HashMap<SmolStr, Vec<Glob>>);

/// Why a source cannot be added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DuplicateSource {
    /// Another source has its name.
    #[error("there is a source of tools named `{0}` already; choose another name")]
    Name(String),
    /// Another source has the same pattern of names, so that a name could belong to both.
    #[error(
        "the tools of `{other}` and `{name}` have the same names, `{names}`; choose another prefix for one of them"
    )]
    ToolNames {
        /// The source.
        name: String,
        /// The other source.
        other: String,
        /// The pattern of both.
        names: Glob,
    },
}

impl SourceNames {
    pub(super) fn add(&mut self, source: &SmolStr, names: Vec<Glob>) -> Result<(), DuplicateSource> {
        // Patterns that are whole names were chosen by the owner for single tools; the registry refuses the second tool.
        let same = self.0.iter().find_map(|(other, theirs)| {
            let pattern = theirs.iter().find(|pattern| is_open(pattern) && names.contains(pattern))?;
            Some((other.to_string(), pattern.clone()))
        });
        match (self.0.entry(source.clone()), same) {
            (Entry::Occupied(_), _) => Err(DuplicateSource::Name(source.to_string())),
            (_, Some((other, names))) => Err(DuplicateSource::ToolNames { name: source.to_string(), other, names }),
            (Entry::Vacant(vacant), None) => {
                vacant.insert(names);
                Ok(())
            }
        }
    }

    /// Replaces the names of a source that was added.
    pub(super) fn replace(&mut self, source: &SmolStr, names: Vec<Glob>) {
        if let Some(declared) = self.0.get_mut(source) {
            *declared = names;
        }
    }

    pub(super) fn remove(&mut self, source: &SmolStr) {
        self.0.remove(source);
    }

    /// Whether a source may still add a tool of this name.
    pub(super) fn may_be_added(&self, name: &ToolName) -> bool {
        self.0.values().flatten().any(|names| names.matches(name))
    }

    /// Whether the patterns of a source allow this name.
    pub(super) fn allows(&self, source: &SmolStr, name: &ToolName) -> bool {
        self.specificity(source, name).is_some()
    }

    /// The source that the name belongs to: that of the most specific pattern.
    pub(super) fn owner(&self, name: &ToolName) -> Option<&SmolStr> {
        let ranked = self.0.keys().filter_map(|source| Some((self.specificity(source, name)?, source)));
        ranked.max().map(|(_, source)| source)
    }

    /// The other source that the name belongs to, because its pattern is more specific.
    pub(super) fn other_owner(&self, source: &SmolStr, name: &ToolName) -> Option<&SmolStr> {
        let own = self.specificity(source, name);
        let others = self.0.keys().filter(|other| *other != source);
        let ranked = others.filter_map(|other| Some((self.specificity(other, name)?, other)));
        ranked.filter(|(rank, _)| Some(*rank) > own).max().map(|(_, other)| other)
    }

    /// The tools that sources have added and that belong to another source by now.
    pub(super) fn misplaced(&self, tools: &Tools) -> Vec<ToolName> {
        let is_misplaced = |name: &&ToolName| {
            let source = tools.get(name).and_then(|tool| tool.source());
            source.is_some_and(|source| self.other_owner(&source.into(), name).is_some())
        };
        tools.names().filter(is_misplaced).cloned().collect()
    }

    /// The length of the fixed part of the most specific pattern of a source that matches. A whole name comes before any prefix.
    fn specificity(&self, source: &SmolStr, name: &ToolName) -> Option<usize> {
        let matching = self.0.get(source)?.iter().filter(|pattern| pattern.matches(name));
        matching.map(|pattern| if is_open(pattern) { fixed_length(pattern) } else { usize::MAX }).max()
    }
}

/// Whether a pattern matches more than one name.
fn is_open(pattern: &Glob) -> bool {
    fixed_length(pattern) < pattern.as_str().len()
}

fn fixed_length(pattern: &Glob) -> usize {
    pattern.as_str().find(['*', '?']).unwrap_or(pattern.as_str().len())
}
