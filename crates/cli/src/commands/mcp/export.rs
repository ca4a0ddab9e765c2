//! `mcp export`: the config with which an MCP client uses this hub.
//!
//! In: a client and the config of the hub. Out: the part of the client's config that names the hub, printed or merged into its file.
//! It never holds a key: it refers to one in the way of the client. `json_merge` changes JSON files, `client_file` replaces files.

mod client_file;
mod json_merge;

use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::{
    client::Request,
    config::{toml_key, toml_string},
    exit::Exit,
    failure::Failure,
    local_hub::LocalHub,
    session::Session,
};

/// Export the hub to an MCP client.
#[derive(Debug, clap::Args)]
pub(crate) struct ClientExport {
    /// The client
    #[arg(long, value_enum)]
    client: McpClient,
    /// Add it to this file, which is copied before; everything else in it stays [default: print it]
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Name of the hub in the client
    #[arg(long, value_name = "NAME", default_value = "toolhub")]
    name: String,
}

/// An MCP client whose config is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum McpClient {
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    Vscode,
    Codex,
    Gemini,
}

/// How a client reaches the hub.
struct HubAddress {
    /// The URL of the MCP endpoint.
    url: String,
    requires_key: bool,
    /// The arguments with which `toolhub` serves a client on stdin.
    arguments: Vec<String>,
}

/// A part of a client's config.
enum Snippet {
    /// Members of a JSON document, by path; one that ends in a list is added to it.
    Json(Vec<(Vec<String>, Value)>),
    /// A section of a TOML document.
    Toml { path: [String; 2], section: String },
}

pub(super) fn run(session: &Session, args: &ClientExport) -> Result<Exit, Failure> {
    let address = find_address(session, args.client)?;
    let (snippet, printer) = (args.client.snippet(&args.name, &address), &session.printer);
    let text = snippet.render();
    let written = match &args.write {
        None => None,
        Some(file) => {
            let file = session.global.load_options()?.folder.join(file);
            let change = client_file::change(&file, |before| snippet.merge_into(before))?;
            Some((file, change))
        }
    };
    let mut notes = args.client.notes(&address);
    if printer.json {
        let (file, backup) = written.map(|(file, change)| (file, change.backup)).unzip();
        let shown = |file: PathBuf| file.display().to_string();
        let report =
            json!({"config": text, "file": file.map(shown), "backup": backup.flatten().map(shown), "notes": notes});
        printer.print_json(&report.to_string());
        return Ok(Exit::Success);
    }
    match written {
        None => printer.print(&text),
        Some((file, change)) => {
            let file = file.display();
            match (change.is_changed, change.backup) {
                (false, _) => printer.print(&format!("unchanged  {file}")),
                (true, None) => printer.print(&format!("written  {file}")),
                (true, Some(backup)) => printer.print(&format!("written  {file}\ncopy     {}", backup.display())),
            }
            notes.push("restart the client, or make it read its config again".into());
        }
    }
    notes.iter().for_each(|note| printer.note(note));
    Ok(Exit::Success)
}

fn find_address(session: &Session, client: McpClient) -> Result<HubAddress, Failure> {
    let global = &session.global;
    let thread = global.thread.as_deref();
    let path = match thread {
        Some(thread) => Request::at_root(axum::http::Method::POST, ["mcp", "t", thread]).target,
        None => "/mcp".into(),
    };
    let mut arguments: Vec<String> = ["mcp", "serve", "--stdio"].map(String::from).into();
    let (url, requires_key) = match &global.server {
        Some(url) => {
            arguments.extend(["--server".into(), url.clone()]);
            (url.trim_end_matches('/').to_owned(), global.token.is_some())
        }
        None => {
            // Secrets of tools are not needed here.
            let local = LocalHub::load(global.load_options()?.assuming_variables_set())?;
            match local.config_file() {
                Some(file) => {
                    let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
                    arguments.extend(["--config".into(), file.display().to_string()]);
                }
                None if client == McpClient::ClaudeDesktop => {
                    let message = "there is no config file; the client starts toolhub in a folder of its own";
                    return Err(Failure::new("no_config", message)
                        .help("toolhub init")
                        .help("or name a config with --config FILE, or a server with --server URL"));
                }
                None => {}
            }
            (local.url(), local.requires_keys())
        }
    };
    arguments.extend(thread.into_iter().flat_map(|thread| ["--thread".to_owned(), thread.to_owned()]));
    Ok(HubAddress { url: format!("{url}{path}"), requires_key, arguments })
}

impl McpClient {
    fn snippet(self, name: &str, hub: &HubAddress) -> Snippet {
        let HubAddress { url, requires_key, arguments } = hub;
        let bearer = |reference: &str| json!({"Authorization": format!("Bearer {reference}")});
        let with_key = |mut entry: Value, reference: &str| {
            if *requires_key {
                entry["headers"] = bearer(reference);
            }
            entry
        };
        let server = |section: &str, entry| (vec![section.to_owned(), name.to_owned()], entry);
        match self {
            Self::ClaudeDesktop => {
                Snippet::Json(vec![server("mcpServers", json!({"command": "toolhub", "args": arguments}))])
            }
            Self::ClaudeCode => {
                let entry = with_key(json!({"type": "http", "url": url}), "${TOOLHUB_TOKEN}");
                Snippet::Json(vec![server("mcpServers", entry)])
            }
            Self::Cursor => {
                Snippet::Json(vec![server("mcpServers", with_key(json!({"url": url}), "${env:TOOLHUB_TOKEN}"))])
            }
            Self::Vscode => {
                let input = format!("{name}-token");
                let entry = with_key(json!({"type": "http", "url": url}), &format!("${{input:{input}}}"));
                let prompt =
                    json!({"type": "promptString", "id": input, "description": "API key of Toolhub", "password": true});
                let inputs = requires_key.then(|| (vec!["inputs".to_owned()], json!([prompt])));
                Snippet::Json([server("servers", entry)].into_iter().chain(inputs).collect())
            }
            Self::Codex => {
                let key = if *requires_key { "bearer_token_env_var = \"TOOLHUB_TOKEN\"\n" } else { "" };
                let section = format!("[mcp_servers.{}]\nurl = {}\n{key}", toml_key(name), toml_string(url));
                Snippet::Toml { path: ["mcp_servers".into(), name.into()], section }
            }
            Self::Gemini => {
                Snippet::Json(vec![server("mcpServers", with_key(json!({"httpUrl": url}), "$TOOLHUB_TOKEN"))])
            }
        }
    }

    /// What the user has to do besides.
    fn notes(self, hub: &HubAddress) -> Vec<String> {
        let mut notes = Vec::new();
        if self != Self::ClaudeDesktop {
            notes.push("the client needs a running server: toolhub serve".into());
        }
        if hub.requires_key {
            notes.push(match self {
                Self::ClaudeDesktop => {
                    "the hub requires a key: add it to the entry as \"env\": {\"TOOLHUB_TOKEN\": …}, because Claude Desktop has no references to variables".into()
                }
                Self::Vscode => "VS Code asks for the key once and stores it".into(),
                _ => "set TOOLHUB_TOKEN in the environment of the client".to_owned(),
            });
        }
        notes
    }
}

impl Snippet {
    /// The snippet as a document of its own.
    fn render(&self) -> String {
        match self {
            Self::Json(_) => self.merge_into("").unwrap_or_default(),
            Self::Toml { section, .. } => section.clone(),
        }
    }

    /// The document with the snippet.
    ///
    /// # Errors
    /// Why the document cannot be changed.
    fn merge_into(&self, before: &str) -> Result<String, String> {
        match self {
            Self::Json(members) => members.iter().try_fold(before.to_owned(), |text, (path, value)| {
                let path: Vec<&str> = path.iter().map(String::as_str).collect();
                json_merge::set(&text, &path, value)
            }),
            Self::Toml { path, section } => client_file::set_section(before, path, section),
        }
    }
}
