//! Reads an old registry: the types of tools with their files, the sets of tools, and discovery.
//!
//! In: the path of `__registry__.toml`. Out: every tool file with what the registry says about it, and the sets. `discovery` searches
//! the folders; what the tool files say is left to `tool_section`.

use std::{
    collections::BTreeSet,
    path::{Path as FilePath, PathBuf},
};

use super::{
    super::tree::{Node, Origin, Value},
    findings::Findings,
    keys::{Keys, text},
    kinds::{self, OldKind},
    project_files::{Found, ProjectFiles},
};

/// A file that describes a tool.
pub(super) struct ToolFile {
    pub(super) node: Node,
    /// Its path in messages.
    pub(super) name: String,
    /// Its name without the extension.
    pub(super) stem: String,
    /// The kind of the type that lists it.
    pub(super) kind: Option<OldKind>,
    /// The type that lists it and is disabled.
    pub(super) disabled_by: Option<String>,
}

/// A set of tools.
pub(super) struct ToolSet {
    pub(super) name: String,
    pub(super) node: Node,
    pub(super) description: Option<Node>,
    pub(super) tools: Vec<Node>,
}

/// Everything that a registry leads to.
pub(super) struct SourceTree<'a> {
    pub(super) project: ProjectFiles<'a>,
    pub(super) tools: Vec<ToolFile>,
    pub(super) sets: Vec<ToolSet>,
    /// The tool files that were read already.
    pub(super) seen: BTreeSet<PathBuf>,
    /// The registries that are being read, each found by the one before it.
    reading: Vec<PathBuf>,
    /// The registries that were read.
    finished: BTreeSet<PathBuf>,
}

impl<'a> SourceTree<'a> {
    pub(super) fn new(project: ProjectFiles<'a>) -> Self {
        let (seen, finished) = (BTreeSet::new(), BTreeSet::new());
        Self { project, tools: Vec::new(), sets: Vec::new(), seen, reading: Vec::new(), finished }
    }

    /// Reads a registry that is named or was found at `origin`.
    pub(super) fn read_registry(&mut self, path: &FilePath, origin: &Origin, findings: &mut Findings) {
        let path = match self.project.find(path, origin, findings) {
            Found::File(path) => path,
            Found::Nothing => {
                let message = format!("cannot read {}: no such file", self.project.display(path));
                return findings.report(origin, message, "write the path of the registry, relative to this file");
            }
            Found::Folder(path) => {
                let message = format!("cannot read {}: it is a folder", self.project.display(&path));
                return findings.report(origin, message, "name the file in it: __registry__.toml");
            }
            Found::Unusable => return,
        };
        if let Some(node) = self.project.read(&path, origin, findings) {
            self.read_parsed(path, node, origin, findings);
        }
    }

    /// Whether a registry is being read.
    pub(super) fn is_reading(&self, path: &FilePath) -> bool {
        self.reading.iter().any(|other| other == path)
    }

    /// Whether it is the registry that is being read at the moment.
    pub(super) fn is_current(&self, path: &FilePath) -> bool {
        self.reading.last().is_some_and(|current| current == path)
    }

    /// Reads a parsed registry.
    pub(super) fn read_parsed(&mut self, path: PathBuf, node: Node, origin: &Origin, findings: &mut Findings) {
        if self.is_reading(&path) {
            return self.report_cycle(&path, origin, findings);
        }
        if !self.finished.insert(path.clone()) {
            return;
        }
        let folder = path.parent().unwrap_or(FilePath::new(".")).to_owned();
        self.reading.push(path);
        let Value::Table(table) = node.value else { return };
        let mut keys = Keys(table);
        keys.take("metadata");
        if let Some(Keys(types)) = keys.take_table("tool_types", findings) {
            for (name, node) in types {
                self.read_type(&name, node, &folder, findings);
            }
        }
        if let Some(Keys(sets)) = keys.take_table("tool_sets", findings) {
            for (name, node) in sets {
                self.read_set(name, node, findings);
            }
        }
        if let Some(discovery) = keys.take_table("auto_discovery", findings) {
            self.discover(discovery, &folder, findings);
        }
        keys.finish("", findings);
        self.reading.pop();
    }

    pub(super) fn report_cycle(&self, path: &FilePath, origin: &Origin, findings: &mut Findings) {
        let start = self.reading.iter().position(|other| other == path).unwrap_or(0);
        let way = self.reading[start..].iter().map(PathBuf::as_path).chain([path]);
        let way: Vec<String> = way.map(|path| self.project.display(path)).collect();
        let help = "name only folders and files of tools here, or add the registry to `exclude_patterns`";
        findings.report(origin, format!("cycle of discovery: {}", way.join(" → ")), help);
    }

    /// Reads `[tool_types.NAME]` and the files that it lists.
    fn read_type(&mut self, name: &str, node: Node, folder: &FilePath, findings: &mut Findings) {
        let place = node.key_origin.clone();
        let Value::Table(table) = node.value else {
            return findings.note(&place, format!("`tool_types.{name}` is not a table; it was left out"));
        };
        let mut keys = Keys(table);
        let kind = OldKind::from_name(name);
        if kind.is_none() {
            let node = Node::new(Value::Text(name.to_owned()), &place);
            kinds::report_unknown(name, &node, findings);
        }
        keys.take("description");
        if let Some(class) = keys.take("class_path") {
            findings.note(
                &class.key_origin,
                format!("the class of the type `{name}` is not used: toolhub executes its tools"),
            );
        }
        let is_disabled = keys.take("enabled").is_some_and(|node| matches!(node.value, Value::Bool(false)));
        let directory = keys.take("config_directory");
        let base = self.base_folder(directory.as_ref(), folder, self.project.root(), findings);
        match keys.take("config_files").map(|node| (node.origin.clone(), node.value)) {
            Some((_, Value::List(files))) => {
                for file in &files {
                    match text(file) {
                        Some(name) if !name.is_empty() => {
                            let path = base.join(name);
                            self.read_listed(&path, file, kind, is_disabled.then_some(&place), findings);
                        }
                        _ => findings.note(&file.origin, "the name of a file is a text; this one was left out"),
                    }
                }
            }
            Some((origin, _)) => findings.note(&origin, "`config_files` is not a list; it was left out"),
            None => {}
        }
        keys.finish(&format!("tool_types.{name}"), findings);
    }

    /// The folder that is written, relative to the first of two others in which it exists.
    fn base_folder(
        &self,
        written: Option<&Node>,
        first: &FilePath,
        second: &FilePath,
        findings: &mut Findings,
    ) -> PathBuf {
        let Some((node, name)) = written.and_then(|node| Some((node, text(node)?))) else { return first.to_owned() };
        let (path, other) = (first.join(name), second.join(name));
        if !path.exists() && other.exists() {
            let text =
                format!("`{name}` does not exist beside this file; it is read from {}", self.project.display(&other));
            findings.note(&node.origin, text);
            return other;
        }
        path
    }

    fn read_listed(
        &mut self,
        path: &FilePath,
        node: &Node,
        kind: Option<OldKind>,
        disabled_by: Option<&Origin>,
        findings: &mut Findings,
    ) {
        match self.project.find(path, &node.origin, findings) {
            Found::File(path) if self.is_reading(&path) => self.report_cycle(&path, &node.origin, findings),
            Found::File(path) => {
                let disabled_by = disabled_by.map(super::findings::place);
                self.read_tool_file(&path, &node.origin, kind, disabled_by, findings);
            }
            Found::Folder(path) => {
                let name = self.project.display(&path);
                findings.note(&node.origin, format!("{name} is a folder, not the file of a tool; it was left out"));
            }
            Found::Nothing => {
                let name = self.project.display(path);
                findings.note(&node.origin, format!("{name} does not exist; the tool was left out"));
            }
            Found::Unusable => {}
        }
    }

    /// Reads the file of a tool, once.
    fn read_tool_file(
        &mut self,
        path: &FilePath,
        origin: &Origin,
        kind: Option<OldKind>,
        disabled_by: Option<String>,
        findings: &mut Findings,
    ) {
        if !self.seen.insert(path.to_owned()) {
            return;
        }
        let Some(node) = self.project.read(path, origin, findings) else { return };
        self.add_tool_file(path, node, kind, disabled_by);
    }

    pub(super) fn add_tool_file(
        &mut self,
        path: &FilePath,
        node: Node,
        kind: Option<OldKind>,
        disabled_by: Option<String>,
    ) {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name = self.project.display(path);
        self.tools.push(ToolFile { node, name, stem, kind, disabled_by });
    }

    fn read_set(&mut self, name: String, node: Node, findings: &mut Findings) {
        let place = node.clone();
        let Value::Table(table) = node.value else {
            return findings.note(&place.key_origin, format!("`tool_sets.{name}` is not a table; it was left out"));
        };
        let mut keys = Keys(table);
        let is_disabled = keys.take("enabled").is_some_and(|node| matches!(node.value, Value::Bool(false)));
        let description = keys.take("description");
        keys.take("name");
        keys.take("metadata");
        let tools = match keys.take("tools").map(|node| node.value) {
            Some(Value::List(tools)) => tools,
            _ => Vec::new(),
        };
        keys.finish(&format!("tool_sets.{name}"), findings);
        if is_disabled || tools.is_empty() {
            let why = if is_disabled { "is disabled" } else { "names no tools" };
            return findings.note(&place.key_origin, format!("the tool set `{name}` {why} and was left out"));
        }
        self.sets.push(ToolSet { name, node: place, description, tools });
    }
}
