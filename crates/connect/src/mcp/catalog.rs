//! The tools that a server lists, as definitions of ours.
//!
//! In: the pages of `tools/list` as JSON text, and what the owner of the hub says about the server. Out: the tools that can be
//! registered, and those that cannot with the reason (`Quarantined`). Each tool is read by itself, so that an odd one harms no other.
//! Pure: fetching pages, remembering definitions and registering tools are left to others.

mod definition;
mod hints;
mod pages;
mod param_headers;
mod tool;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use toolhub_core::{Annotations, Glob, Kind, ToolBuilder, ToolName, offload, schema::Schema};

use self::hints::{Denials, OwnerHints};
pub(crate) use self::{
    definition::SentDefinition,
    pages::{ListReader, RawList, Step},
};
use crate::secret_mask::SecretMask;

/// What the owner of the hub says about the tools of a server. All patterns match the server's own names.
#[derive(Clone, Default)]
pub(crate) struct CatalogOptions {
    /// Prefix of the names of the tools; empty: they keep their names.
    pub(crate) prefix: String,
    /// The tools to offer; empty: all.
    pub(crate) include: Vec<Glob>,
    /// The tools not to offer.
    pub(crate) exclude: Vec<Glob>,
    /// Tools that are offered under a name of their own, whatever the two lists say.
    pub(crate) named: Vec<NamedTool>,
    /// Whether only these are offered.
    pub(crate) only_named: bool,
    /// Whether the server's hints are believed.
    pub(crate) trust: bool,
    /// Tools that change nothing.
    pub(crate) read_only: Vec<Glob>,
    /// Tools that may be called twice.
    pub(crate) idempotent: Vec<Glob>,
    /// Whether arguments may be repeated in headers: over HTTP, since the revision of July 2026.
    pub(crate) param_headers: bool,
    /// The secrets that the server knows; definitions are shown to models.
    pub(crate) secrets: Arc<SecretMask>,
}

/// A tool with a name of its own.
#[derive(Clone)]
pub(crate) struct NamedTool {
    pub(crate) name: ToolName,
    /// The name by which the server knows it.
    pub(crate) original_name: String,
    /// Whether it changes nothing.
    pub(crate) read_only: bool,
    /// Whether it may be called twice.
    pub(crate) idempotent: bool,
}

/// The tools of a server. The order does not depend on the order of the server's list.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    /// The tools, by their original names.
    pub(crate) tools: Vec<ListedTool>,
    /// The tools that cannot be offered, by their original names.
    pub(crate) quarantined: Vec<Quarantined>,
    /// How many tools `include` and `exclude` leave out.
    pub(crate) excluded: usize,
    /// What a person should know: what was cut, patterns that match nothing.
    pub(crate) notes: Vec<String>,
}

impl Catalog {
    /// What the server sent for each tool, by original name.
    pub(crate) fn definitions(&self) -> BTreeMap<&str, &SentDefinition> {
        self.tools.iter().map(|tool| (tool.original_name.as_str(), &tool.definition)).collect()
    }
}

/// A tool that can be registered.
#[derive(Debug, Clone)]
pub(crate) struct ListedTool {
    /// The name by which the server knows it.
    pub(crate) original_name: String,
    pub(crate) name: ToolName,
    pub(crate) description: String,
    /// The schema of the arguments.
    pub(crate) parameters: Schema,
    /// The output schema, if there is a usable one.
    pub(crate) output: Option<Schema>,
    /// The title, and the effects as far as they are believed.
    pub(crate) annotations: Annotations,
    /// What the server denies about its effects.
    pub(crate) denials: Denials,
    /// What the server sent.
    pub(crate) definition: SentDefinition,
    /// What of the definition was left out.
    pub(crate) notes: Vec<String>,
}

impl ListedTool {
    /// Starts the tool for the hub. `source` is the name of the server; executor and policies are still to be set.
    pub(crate) fn builder(&self, source: &str) -> ToolBuilder {
        let annotations = self.annotations.clone();
        ToolBuilder::new(self.name.as_str(), Kind::Mcp)
            .description(&self.description)
            .compiled_schemas(self.parameters.clone(), self.output.clone())
            .annotations(|own| *own = annotations)
            .origin(source, &self.original_name)
    }
}

/// A tool that cannot be offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Quarantined {
    /// Its name, or its position in the list if it has none.
    pub(crate) original_name: String,
    /// Why, for people.
    pub(crate) reason: String,
}

/// Reads a complete list; a large one on a blocking thread.
pub(crate) async fn read(list: RawList, options: CatalogOptions) -> Catalog {
    offload::run(list.bytes * COMPILE_COST, move || read_list(&list, &options)).await
}

/// How much longer it takes to compile a schema than to parse it.
const COMPILE_COST: usize = 16;

fn read_list(list: &RawList, options: &CatalogOptions) -> Catalog {
    let mut catalog = Catalog::default();
    let mut found = Vec::new();
    let mut names = BTreeSet::new();
    for (index, raw) in list.entries.iter().enumerate() {
        match tool::RawTool::parse(raw.get(), index, &options.secrets) {
            Ok(raw) => {
                names.insert(raw.name.clone());
                found.push(raw);
            }
            Err(quarantined) => catalog.quarantined.push(quarantined),
        }
    }
    // Stable: of two tools with the same name, the first one of the list stays.
    found.sort_by(|a, b| a.name.cmp(&b.name));
    let mut taken: BTreeMap<ToolName, String> = BTreeMap::new();
    for raw in found {
        let owner = options.owner_hints(&raw.name);
        let named = options.named.iter().filter(|named| named.original_name == raw.name);
        let mut offered: Vec<(ToolName, OwnerHints)> = named
            .map(|named| {
                let (read_only, idempotent) =
                    (owner.read_only || named.read_only, owner.idempotent || named.idempotent);
                (named.name.clone(), OwnerHints { read_only, idempotent, ..owner })
            })
            .collect();
        if options.selects(&raw.name) {
            offered.push((ToolName::imported(&options.prefix, &raw.name), owner));
        }
        if offered.is_empty() {
            catalog.excluded += 1;
        }
        for (name, owner) in offered {
            let outcome = match taken.get(&name) {
                Some(other) => Err(raw.quarantine(name_conflict(&raw.name, other, &name))),
                None => raw.read(name, owner, options),
            };
            match outcome {
                Ok(tool) => {
                    taken.insert(tool.name.clone(), tool.original_name.clone());
                    catalog.tools.push(tool);
                }
                Err(quarantined) => catalog.quarantined.push(quarantined),
            }
        }
    }
    catalog.quarantined.extend(options.named.iter().filter(|named| !names.contains(&named.original_name)).map(
        |named| {
            let reason = format!("the server does not have it; `{}` cannot be offered", named.name);
            Quarantined { original_name: named.original_name.clone(), reason }
        },
    ));
    catalog.quarantined.sort_by(|a, b| a.original_name.cmp(&b.original_name));
    catalog.notes.extend(list.cut.as_ref().map(ToString::to_string));
    catalog.notes.extend(options.unmatched(&names));
    catalog
}

fn name_conflict(original: &str, other: &str, name: &ToolName) -> String {
    if original == other {
        return "the server lists another tool with the same name".into();
    }
    format!("its name here would be `{name}`, which the tool {other:?} of this server already has")
}

impl CatalogOptions {
    pub(crate) fn selects(&self, name: &str) -> bool {
        !self.only_named
            && (self.include.is_empty() || matches_any(&self.include, name))
            && !matches_any(&self.exclude, name)
    }

    /// What the owner says about a tool of this name.
    fn owner_hints(&self, name: &str) -> OwnerHints {
        OwnerHints {
            trust: self.trust,
            read_only: matches_any(&self.read_only, name),
            idempotent: matches_any(&self.idempotent, name),
        }
    }

    /// Notes about patterns that match no tool.
    fn unmatched(&self, names: &BTreeSet<String>) -> Vec<String> {
        let settings = [
            ("include", &self.include),
            ("exclude", &self.exclude),
            ("read_only", &self.read_only),
            ("idempotent", &self.idempotent),
        ];
        let unmatched = settings.into_iter().flat_map(|(setting, globs)| {
            let unused = globs.iter().filter(|glob| !names.iter().any(|name| glob.matches(name)));
            unused.map(move |glob| format!("`{glob}` in `{setting}` matches no tool of the server"))
        });
        unmatched.collect()
    }
}

fn matches_any(globs: &[Glob], name: &str) -> bool {
    globs.iter().any(|glob| glob.matches(name))
}

#[cfg(test)]
mod tests;
