//! `imports.mcp_json`: MCP servers in the configs of other programs, read each time the config is loaded.
//!
//! In: the merged layers. Out: the same with a section `[mcp_servers.NAME]` for each server of the files, and what is wrong with them.
//! `foreign_mcp` reads the servers.

use std::{
    fs,
    path::{Path as FilePath, PathBuf},
    sync::Arc,
};

use super::{
    foreign_mcp::{self, ForeignConfig, LiteralSecrets},
    problem::Problem,
    tree::{self, Node, Origin, Path, Source, Value},
    variable_names::ExistingVariables,
};

/// The servers of the files, and their problems.
#[derive(Default)]
pub(super) struct Imported {
    /// A tree with the sections of each file.
    pub(super) trees: Vec<Node>,
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<String>,
    /// The files that were read.
    pub(super) files: Vec<PathBuf>,
}

/// Reads the files that the config names. `cwd` is the base of relative paths in flags and variables.
pub(super) fn read(tree: &Node, cwd: &FilePath) -> Imported {
    let mut imported = Imported::default();
    let list = Path::of(["imports", "mcp_json"]);
    let Some(Node { value: Value::List(files), .. }) = tree.get(&list) else { return imported };
    for (index, node) in files.iter().enumerate() {
        let Value::Text(name) = &node.value else { continue };
        if let Err((message, help)) = read_file(name, node, cwd, &mut imported) {
            imported.problems.push(Problem::at(&node.origin, &list.index(index), message).help(help));
        }
    }
    imported
}

fn read_file(name: &str, node: &Node, cwd: &FilePath, imported: &mut Imported) -> Result<(), (String, &'static str)> {
    let base = match &node.origin {
        Origin::File { source, .. } => source.path.parent().unwrap_or(cwd),
        Origin::Env { .. } | Origin::Flag(_) => cwd,
    };
    let path = base.join(name.strip_prefix("./").unwrap_or(name));
    let text = fs::read_to_string(&path)
        .map_err(|error| (format!("cannot read {name}: {error}"), "write the path of a file, relative to this one"))?;
    let mut document =
        foreign_mcp::parse(name, &text).map_err(|error| (format!("cannot use {name}: {error}"), "correct it"))?;
    // Opening another project in Claude Code must not add servers here, or change the names of others.
    let projects = document.as_object_mut().and_then(|document| document.remove("projects"));
    if projects.is_some_and(|projects| has_servers(&projects)) {
        let text = "servers of projects are not read; `toolhub mcp import` copies them to the config";
        imported.warnings.push(format!("{name}: {text}"));
    }
    let ForeignConfig { sections, notes, .. } =
        foreign_mcp::read(&document, LiteralSecrets::Keep, &ExistingVariables::default()).map_err(|error| {
            (
                format!("cannot use {name}: {error}"),
                "it needs `mcpServers`, `servers` or `mcp_servers` with different names",
            )
        })?;
    imported.warnings.extend(notes.into_iter().map(|note| format!("{name}: {note}")));
    imported.files.push(path.clone());
    let text = sections.into_iter().map(|(_, section)| section).collect::<Vec<_>>().join("\n");
    let (tree, problems) = tree::parse(&Arc::new(Source { name: format!("{name} as TOML"), path, text }));
    imported.problems.extend(problems);
    imported.trees.push(tree);
    Ok(())
}

fn has_servers(projects: &serde_json::Value) -> bool {
    let servers =
        projects.as_object().into_iter().flatten().filter_map(|(_, settings)| settings["mcpServers"].as_object());
    servers.into_iter().any(|servers| !servers.is_empty())
}

/// Adds the servers of a file to the config. A name that is taken is a problem at both places.
pub(super) fn merge(config: &mut Node, imported: Node) -> Vec<Problem> {
    let servers = Path::of(["mcp_servers"]);
    let names: Vec<String> = match imported.get(&servers).map(|node| &node.value) {
        Some(Value::Table(table)) => table.keys().cloned().collect(),
        _ => Vec::new(),
    };
    let taken = names.iter().filter_map(|name| {
        let path = servers.key(name);
        let (here, there) = (config.get(&path)?, imported.get(&path)?);
        let place = Problem::at(&there.key_origin, &path, String::new()).location();
        let message = format!("there are two MCP servers named `{name}`: the other is at {place}");
        Some(Problem::at(&here.key_origin, &path, message).help("rename one of them, or remove it"))
    });
    let problems: Vec<Problem> = taken.collect();
    if problems.is_empty() {
        config.merge(imported);
    }
    problems
}
