//! Finds the servers in the config of another program, and names them.
//!
//! In: the parsed config. Out: each server with a name of ours. Claude Code has servers of its user and of each project; those of
//! projects get another name where theirs is taken.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Longest part of a name that is taken over.
const MAX_NAME: usize = 32;

/// A server of another program.
pub(super) struct FoundServer<'a> {
    pub(super) name: String,
    /// The folder of the project that it belongs to.
    pub(super) project: Option<&'a str>,
    pub(super) keys: Map<String, Value>,
}

pub(super) fn find(document: &Value) -> Result<Vec<FoundServer<'_>>, String> {
    let places = ["/mcpServers", "/servers", "/mcp/servers", "/mcp_servers"];
    let servers = places.iter().find_map(|place| document.pointer(place)?.as_object());
    let projects = document.get("projects").and_then(Value::as_object).into_iter().flatten();
    let projects: Vec<_> = projects
        .filter_map(|(project, settings)| Some((project, settings.get("mcpServers")?.as_object()?)))
        .filter(|(_, servers)| !servers.is_empty())
        .collect();
    if servers.is_none() && projects.is_empty() {
        return Err("it has no MCP servers".into());
    }
    let (mut found, mut names) = (Vec::<FoundServer<'_>>::new(), BTreeMap::new());
    for (original, server) in servers.into_iter().flatten() {
        let name = clean(original);
        if let Some(other) = names.insert(name.clone(), original) {
            return Err(format!(
                "the servers `{other}` and `{original}` would both be named `{name}` here; rename one of them"
            ));
        }
        // What is no table has no keys, and is left out with a note.
        found.push(FoundServer { name, project: None, keys: server.as_object().cloned().unwrap_or_default() });
    }
    for (project, servers) in projects {
        for (original, server) in servers {
            let Some(mut keys) = server.as_object().cloned() else { continue };
            if keys.contains_key("command") {
                // A program of a project starts in its folder.
                keys.entry("cwd").or_insert_with(|| project.as_str().into());
            }
            // The same address in several projects is one server.
            if found.iter().any(|other| names.get(&other.name) == Some(&original) && other.keys == keys) {
                continue;
            }
            let name = free_name(&clean(original), project, |name| names.contains_key(name));
            names.insert(name.clone(), original);
            found.push(FoundServer { name, project: Some(project), keys });
        }
    }
    Ok(found)
}

fn clean(text: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    text.chars().map(allowed).take(MAX_NAME).collect()
}

/// The name itself, or with the folder of its project if it is taken.
fn free_name(name: &str, project: &str, is_taken: impl Fn(&String) -> bool) -> String {
    let folder = project.trim_end_matches(['/', '\\']).rsplit(['/', '\\']).next().unwrap_or_default();
    let of_project: String = format!("{name}_{}", clean(folder)).chars().take(MAX_NAME + 16).collect();
    let numbered = (2_usize..).map(|number| format!("{of_project}_{number}"));
    let mut names = [name.to_owned(), of_project.clone()].into_iter().chain(numbered);
    names.find(|name| !is_taken(name)).expect("there is always a higher number")
}
