//! Old registries: trees of `configs/tools/__registry__.toml`, loaded with the config or converted to sections of it.
//!
//! In: the path of a registry. Out: sections `[tools.NAME]` and `[toolsets.NAME]` with the places of the old files, what was adjusted in
//! them, and problems. `source_tree` and `discovery` find the files, `tool_section` reads one of them. Loading and converting differ in
//! their last step only: one merges the sections into the config, the other writes them as text (`converted_text`).

mod converted_text;
mod discovery;
mod findings;
mod keys;
mod kinds;
mod mcp_section;
mod metadata;
mod misplaced;
mod project_files;
mod rest_section;
mod secrets;
mod settings;
mod source_tree;
mod state_section;
mod tool_section;
mod units;

use std::{
    collections::BTreeMap,
    path::{Path as FilePath, PathBuf},
};

use self::{
    findings::{Findings, place},
    keys::{text, text_node, with_value},
    project_files::ProjectFiles,
    secrets::{Secrets, without_secrets},
    source_tree::{SourceTree, ToolSet},
    tool_section::ToolSection,
};
use super::{
    problem::{Problem, Problems},
    tree::{Node, Origin, Path, Value},
    variable_names::{ExistingVariables, VariableNames, referenced_variables},
};

/// The tools of old registries, for the config.
#[derive(Default)]
pub(super) struct OldTools {
    /// A tree with their sections.
    pub(super) tree: Option<Node>,
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<String>,
    /// The files that were read, and the folders in which a new file would be read too.
    pub(super) files: Vec<PathBuf>,
    pub(super) folders: Vec<PathBuf>,
}

/// An old registry as text of a config.
pub(crate) struct Converted {
    pub(crate) tools: Vec<String>,
    pub(crate) toolsets: Vec<String>,
    /// The sections, with comments.
    pub(crate) text: String,
    /// The variables that stand for secrets.
    pub(crate) variables: Vec<String>,
    /// What was adjusted, each with its place.
    pub(crate) notes: Vec<String>,
}

/// The sections of a registry.
#[derive(Default)]
struct Sections {
    tools: Vec<ToolSection>,
    sets: Vec<(String, Node)>,
}

/// Reads the registries that the config names. `cwd` is the base of relative paths in flags and variables.
pub(super) fn read(config: &Node, cwd: &FilePath) -> OldTools {
    let mut read = OldTools::default();
    let list = Path::of(["imports", "registry"]);
    let Some(Node { value: Value::List(registries), .. }) = config.get(&list) else { return read };
    let (mut findings, mut sections) = (Findings::default(), Sections::default());
    for (index, node) in registries.iter().enumerate() {
        let Some(name) = text(node) else { continue };
        let base = match &node.origin {
            Origin::File { source, .. } => source.path.parent().unwrap_or(cwd),
            Origin::Env { .. } | Origin::Flag(_) => cwd,
        };
        let path = base.join(name.strip_prefix("./").unwrap_or(name));
        findings.begin(list.index(index));
        let mut source = SourceTree::new(ProjectFiles::new(&path, base, cwd));
        source.read_registry(&path, &node.origin, &mut findings);
        read.files.append(&mut source.project.files);
        read.folders.append(&mut source.project.folders);
        sections.add(source, &mut findings, &mut Secrets::new(None));
    }
    read.folders.sort();
    read.folders.dedup();
    read.tree = sections.into_tree();
    read.problems = findings.problems;
    read.warnings = findings.notes.iter().map(ToString::to_string).collect();
    read
}

/// Converts a registry. `base` is the folder of the config.
///
/// # Errors
/// The problems of the registry.
pub(crate) fn convert(
    registry: &FilePath,
    base: &FilePath,
    cwd: &FilePath,
    existing: &ExistingVariables,
) -> Result<Converted, Problems> {
    let mut findings = Findings::default();
    let mut source = SourceTree::new(ProjectFiles::new(registry, base, cwd));
    source.read_registry(registry, &Origin::Flag(registry.display().to_string()), &mut findings);
    let mut existing = existing.clone();
    existing.referenced.extend(source.tools.iter().flat_map(|file| referenced_variables(&file.node.to_json())));
    let nothing = serde_json::Value::Null;
    let mut secrets = Secrets::new(Some(VariableNames::new(&nothing, &existing)));
    let mut sections = Sections::default();
    sections.add(source, &mut findings, &mut secrets);
    if !findings.problems.is_empty() {
        return Err(Problems::new(findings.problems));
    }
    Ok(Converted {
        text: converted_text::write(&sections.tools, &sections.sets),
        tools: sections.tools.into_iter().map(|tool| tool.name).collect(),
        toolsets: sections.sets.into_iter().map(|(name, _)| name).collect(),
        variables: secrets.variables,
        notes: findings.notes.iter().map(ToString::to_string).collect(),
    })
}

impl Sections {
    /// Adds the tools and sets of a registry.
    fn add(&mut self, source: SourceTree<'_>, findings: &mut Findings, secrets: &mut Secrets<'_>) {
        for file in source.tools {
            let Some(tool) = tool_section::read(file, findings, secrets) else { continue };
            match self.tools.iter().find(|other| other.name == tool.name) {
                Some(other) => report_duplicate("tools", &tool.name, &tool.node.origin, &other.node.origin, findings),
                None => self.tools.push(tool),
            }
        }
        for set in source.sets {
            self.add_set(set, findings);
        }
    }

    fn add_set(&mut self, set: ToolSet, findings: &mut Findings) {
        let ToolSet { name, node, description, tools } = set;
        if let Some((_, other)) = self.sets.iter().find(|(other, _)| *other == name) {
            return report_duplicate("toolsets", &name, &node.key_origin, &other.key_origin, findings);
        }
        let mut names = Vec::new();
        for tool in tools {
            names.push(self.resolve_name(&name, tool, findings));
        }
        let mut table = BTreeMap::from([("tools".to_owned(), with_value(Value::List(names), &node))]);
        let description = description.and_then(|node| without_secrets(&node, "", findings));
        table.extend(description.map(|node| ("description".to_owned(), node)));
        self.sets.push((name, with_value(Value::Table(table), &node)));
    }

    /// A name in a set: that of a tool, or of the file of one.
    fn resolve_name(&self, set: &str, node: Node, findings: &mut Findings) -> Node {
        let Some(name) = text(&node).map(str::to_owned) else { return node };
        if self.tools.iter().any(|tool| tool.name == name) {
            return node;
        }
        match self.tools.iter().find(|tool| tool.stem == name) {
            Some(tool) => {
                let text = format!("`{name}` in the tool set `{set}` is the file of the tool `{}`", tool.name);
                findings.note(&node.origin, text);
                text_node(tool.name.clone(), &node)
            }
            None => {
                findings.note(
                    &node.origin,
                    format!("the tool set `{set}` names `{name}`, which is no tool of the registry"),
                );
                node
            }
        }
    }

    /// The sections as a tree.
    fn into_tree(self) -> Option<Node> {
        let tools: BTreeMap<String, Node> = self.tools.into_iter().map(|tool| (tool.name, tool.node)).collect();
        let sets: BTreeMap<String, Node> = self.sets.into_iter().collect();
        let mut tree = Node::empty();
        let place = tools.values().chain(sets.values()).next().cloned()?;
        let Value::Table(root) = &mut tree.value else { return None };
        for (section, members) in [("tools", tools), ("toolsets", sets)] {
            if !members.is_empty() {
                root.insert(section.into(), with_value(Value::Table(members), &place));
            }
        }
        Some(tree)
    }
}

fn report_duplicate(section: &str, name: &str, here: &Origin, there: &Origin, findings: &mut Findings) {
    findings.begin(Path::of([section, name]));
    let what = if section == "tools" { "tools" } else { "tool sets" };
    let message = format!("there are two {what} named `{name}`: the other is at {}", place(there));
    findings.report(here, message, "rename one of them, or remove it from the registry");
}

/// Keys that say what executes a tool.
const EXECUTORS: [&str; 6] = ["url", "base_url", "command", "builtin", "server", "server_url"];

/// Adds the sections to the config. A section of the config for a tool of a registry overrides its keys, and may say what executes it; two
/// that both say so are a problem.
pub(super) fn merge(config: &mut Node, mut sections: Node) -> Vec<Problem> {
    let mut problems = Vec::new();
    let members = |tree: &Node, section: &str| match tree.get(&Path::of([section])).map(|node| &node.value) {
        Some(Value::Table(table)) => table.keys().cloned().collect::<Vec<_>>(),
        _ => Vec::new(),
    };
    for (section, noun) in [("tools", "tools"), ("toolsets", "tool sets")] {
        for name in members(&sections, section) {
            let path = Path::of([section, name.as_str()]);
            let (Some(here), Some(there)) = (config.get(&path), sections.get(&path)) else { continue };
            if section == "tools" && !(executes(here) && executes(there)) {
                continue;
            }
            let message = format!("there are two {noun} named `{name}`: the other is at {}", place(&there.origin));
            problems.push(Problem::at(&here.key_origin, &path, message).help("rename one of them, or remove it"));
        }
    }
    if problems.is_empty() {
        // The config is merged over the registries.
        let own = std::mem::replace(config, Node::empty());
        let (origin, key_origin) = (own.origin.clone(), own.key_origin.clone());
        sections.merge(own);
        *config = Node { origin, key_origin, ..sections };
    }
    problems
}

fn executes(section: &Node) -> bool {
    matches!(&section.value, Value::Table(keys) if EXECUTORS.iter().any(|key| keys.contains_key(*key)))
}
