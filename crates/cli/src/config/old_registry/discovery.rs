//! `[auto_discovery]`: searches folders for the files of tools.
//!
//! In: the section, and the folder of its registry. Out: tool files that no type lists. The folders are relative to the project, unlike
//! those of the types. Another registry that is found is read as well; one that is being read already is a cycle.

use std::{
    fs,
    path::{Path as FilePath, PathBuf},
};

use toolhub::Glob;

use super::{
    super::tree::{Node, Origin, Value},
    findings::Findings,
    keys::{Keys, text},
    kinds::OldKind,
    project_files::Found,
    source_tree::SourceTree,
};

/// Maximum depth of folders, and number of files that are looked at.
const MAX_DEPTH: usize = 32;
const MAX_FILES: usize = 10_000;

/// Which files are searched for.
struct Search {
    /// Where the folder is written.
    origin: Origin,
    patterns: Vec<Glob>,
    excluded: Vec<Glob>,
    count: usize,
}

impl SourceTree<'_> {
    pub(super) fn discover(&mut self, mut keys: Keys, folder: &FilePath, findings: &mut Findings) {
        let is_disabled = keys.take("enabled").is_some_and(|node| matches!(node.value, Value::Bool(false)));
        let patterns = globs(keys.take("file_patterns"), &["*.toml"], findings);
        let excluded = globs(keys.take("exclude_patterns"), &[], findings);
        let folders = match keys.take("scan_directories").map(|node| node.value) {
            Some(Value::List(folders)) => folders,
            _ => Vec::new(),
        };
        keys.finish("auto_discovery", findings);
        if is_disabled {
            return;
        }
        for node in folders {
            let Some(name) = text(&node).filter(|name| !name.is_empty()) else {
                findings.note(&node.origin, "the name of a folder is a text; this one was left out");
                continue;
            };
            let (in_project, beside) = (self.project.root().join(name), folder.join(name));
            let path = if !in_project.exists() && beside.exists() {
                let text = format!(
                    "`{name}` does not exist in the project; it is read from {}",
                    self.project.display(&beside)
                );
                findings.note(&node.origin, text);
                beside
            } else {
                in_project
            };
            let (patterns, excluded) = (patterns.clone(), excluded.clone());
            let mut search = Search { origin: node.origin.clone(), patterns, excluded, count: 0 };
            match self.project.find(&path, &node.origin, findings) {
                Found::Folder(path) => self.search_folder(&path, &mut Vec::new(), &mut search, findings),
                Found::File(path) => self.add_found(&path, &search, findings),
                Found::Nothing => {
                    findings.note(
                        &node.origin,
                        format!("{} does not exist; nothing was searched", self.project.display(&path)),
                    );
                }
                Found::Unusable => {}
            }
        }
    }

    /// Searches a folder and those in it. `way` is how it was reached.
    fn search_folder(
        &mut self,
        folder: &FilePath,
        way: &mut Vec<PathBuf>,
        search: &mut Search,
        findings: &mut Findings,
    ) {
        if way.iter().any(|other| other == folder) || way.len() >= MAX_DEPTH {
            let name = self.project.display(folder);
            let help = "remove the link, or add it to `exclude_patterns`";
            return findings.report(
                &search.origin,
                format!("cycle of discovery: {name} is inside itself, by a link"),
                help,
            );
        }
        self.project.folders.push(folder.to_owned());
        let Ok(entries) = fs::read_dir(folder) else {
            return findings.note(&search.origin, format!("{} cannot be listed", self.project.display(folder)));
        };
        let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        way.push(folder.to_owned());
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let is_match = |globs: &[Glob]| globs.iter().any(|glob| glob.matches(&name));
            if is_match(&search.excluded) || name.starts_with('.') || !path.is_dir() && !is_match(&search.patterns) {
                continue;
            }
            search.count += 1;
            if search.count > MAX_FILES {
                let help = "name smaller folders in `scan_directories`";
                findings.report(&search.origin, format!("more than {MAX_FILES} files were found"), help);
                break;
            }
            match self.project.find(&path, &search.origin, findings) {
                Found::Folder(path) => self.search_folder(&path, way, search, findings),
                Found::File(path) => self.add_found(&path, search, findings),
                // A link that leads nowhere.
                Found::Nothing | Found::Unusable => {}
            }
        }
        way.pop();
    }

    /// Adds a file that was found, unless it was read already.
    fn add_found(&mut self, path: &FilePath, search: &Search, findings: &mut Findings) {
        if self.is_current(path) {
            return;
        }
        if self.is_reading(path) {
            return self.report_cycle(path, &search.origin, findings);
        }
        if path.extension().is_none_or(|extension| extension != "toml") {
            let text = format!("{} is not TOML and was left out", self.project.display(path));
            return findings.note(&search.origin, text);
        }
        if !self.seen.insert(path.to_owned()) {
            return;
        }
        let Some(node) = self.project.read(path, &search.origin, findings) else { return };
        if has_key(&node, "tool_types") || has_key(&node, "auto_discovery") {
            return self.read_parsed(path.to_owned(), node, &search.origin, findings);
        }
        if !["name", "tool_type", "type", "tool", "function_path"].iter().any(|key| has_key(&node, key)) {
            let text = format!("{} describes no tool and was left out", self.project.display(path));
            return findings.note(&node.origin, text);
        }
        let kind =
            path.parent().and_then(FilePath::file_name).and_then(|name| OldKind::from_name(&name.to_string_lossy()));
        self.add_tool_file(path, node, kind, None);
    }
}

fn has_key(node: &Node, key: &str) -> bool {
    matches!(&node.value, Value::Table(table) if table.contains_key(key))
}

/// Patterns over names of files. Of a pattern with folders only the last part counts.
fn globs(node: Option<Node>, default: &[&str], findings: &mut Findings) -> Vec<Glob> {
    let Some(Node { value: Value::List(items), .. }) = node else {
        return default.iter().filter_map(|text| Glob::new(*text).ok()).collect();
    };
    let mut globs = Vec::new();
    for item in &items {
        let pattern = text(item).map(|text| text.rsplit('/').next().unwrap_or(text));
        match pattern.and_then(|pattern| Glob::new(pattern).ok()) {
            Some(glob) => globs.push(glob),
            None => findings.note(&item.origin, "this pattern cannot be used and was left out"),
        }
    }
    globs
}
