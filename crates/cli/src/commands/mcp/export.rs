//! `mcp export`: the config with which an MCP client uses this hub.
//!
//! In: a client and the config of the hub. Out: the part of the client's config that names the hub, printed or merged into its file.
//! It never holds a key: it refers to one in the way of the client. `entry_merge` keeps what the user added to the entry, `json_merge` and
//! `toml_section` change the texts, `client_file` replaces files.

mod client_file;
mod entry_merge;
mod json_merge;
mod toml_section;

use std::path::{Path, PathBuf};

use clap::{ValueEnum, builder::NonEmptyStringValueParser};
use serde_json::{Value, json};

use crate::{
    client::{Remote, Request},
    config::KEY_PREFIX,
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
    /// Let the client start `toolhub mcp serve --stdio`, instead of using a running server (always for Claude Desktop)
    #[arg(long)]
    stdio: bool,
    /// Add it to this file, which is copied before; everything else in it stays [default: print it]
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Name of the hub in the client
    #[arg(long, value_name = "NAME", default_value = "toolhub", value_parser = NonEmptyStringValueParser::new())]
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
    thread: Option<String>,
    /// The program that serves a client on stdin, and its arguments; `None` for a client that uses the URL.
    program: Option<(String, Vec<String>)>,
}

/// A part of a client's config.
struct Snippet {
    is_toml: bool,
    /// The table of servers, and the name of the hub in it.
    path: [String; 2],
    entry: Value,
    /// What the client asks its user for, if it has such a list.
    inputs: Option<Value>,
}

pub(super) fn run(session: &Session, args: &ClientExport) -> Result<Exit, Failure> {
    // Claude Desktop has no config for addresses.
    let address = find_address(session, args.stdio || args.client == McpClient::ClaudeDesktop)?;
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

fn find_address(session: &Session, is_stdio: bool) -> Result<HubAddress, Failure> {
    let global = &session.global;
    let thread = global.thread.as_deref();
    let path = match thread {
        Some(thread) => Request::at_root(axum::http::Method::POST, ["mcp", "t", thread]).target,
        None => "/mcp".into(),
    };
    let mut arguments: Vec<String> = ["mcp", "serve", "--stdio"].map(String::from).into();
    let (url, requires_key) = match &global.server {
        Some(url) => {
            let remote = Remote::new(url, None, true)?;
            arguments.extend(["--server".into(), url.clone()]);
            (remote.url().to_owned(), global.token.is_some())
        }
        None => {
            // Secrets of tools are not needed here.
            let local = LocalHub::load(global.load_options()?.assuming_variables_set())?;
            local.require_fixed_port()?;
            if is_stdio {
                arguments.extend(config_arguments(&local)?);
            }
            (local.url(), local.requires_keys())
        }
    };
    arguments.extend(thread.into_iter().flat_map(|thread| ["--thread".to_owned(), thread.to_owned()]));
    // Clients with a window often have another PATH than a shell.
    let command = program_path().map_or_else(|| "toolhub".into(), |file| file.display().to_string());
    let thread = thread.map(String::from);
    Ok(HubAddress {
        url: format!("{url}{path}"),
        requires_key,
        thread,
        program: is_stdio.then_some((command, arguments)),
    })
}

/// The file of this program. If a link was called, the link: it is still right after an upgrade.
fn program_path() -> Option<PathBuf> {
    let file = std::env::current_exe().ok()?;
    let called = PathBuf::from(std::env::args_os().next()?);
    let folders: Vec<PathBuf> = match called.components().count() {
        1 => std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect(),
        _ => std::env::current_dir().into_iter().collect(),
    };
    let links = folders.iter().map(|folder| folder.join(&called)).filter(|link| link.is_absolute());
    Some(links.into_iter().find(|link| link.canonicalize().is_ok_and(|target| target == file)).unwrap_or(file))
}

/// The arguments with which a client that starts in another folder, with other variables, gets the same config.
fn config_arguments(local: &LocalHub) -> Result<Vec<String>, Failure> {
    let options = &local.options;
    let Some(file) = local.config_file() else {
        let message = "there is no config file; the client starts toolhub in a folder of its own";
        return Err(Failure::new("no_config", message)
            .help("toolhub init")
            .help("or name a config with --config FILE, or a server with --server URL"));
    };
    // Their values may be secrets, and are not copied. Logs and metrics do not change what the client gets.
    let is_missed = |name: &&str| name.strip_prefix(KEY_PREFIX).is_some_and(|key| !key.starts_with("TELEMETRY__"));
    let variables: Vec<&str> = options.environment.names().filter(is_missed).collect();
    if !variables.is_empty() {
        let message =
            format!("{} changes the config here, but the client starts toolhub without it", variables.join(", "));
        return Err(Failure::new("config_invalid", message)
            .help("write the key in the config file, or pass it with --set, and unset the variable"));
    }
    let absolute = |file: &Path| {
        let file = options.folder.join(file);
        file.canonicalize().unwrap_or(file).display().to_string()
    };
    let mut arguments = vec!["--config".to_owned(), absolute(file)];
    arguments.extend(options.env_file.iter().flat_map(|file| ["--env-file".to_owned(), absolute(file)]));
    arguments.extend(options.set.iter().flat_map(|set| ["--set".to_owned(), set.clone()]));
    Ok(arguments)
}

impl McpClient {
    fn snippet(self, name: &str, hub: &HubAddress) -> Snippet {
        let (url, input) = (&hub.url, format!("{name}-token"));
        let mut entry = match (&hub.program, self) {
            (Some((command, arguments)), Self::Vscode) => {
                json!({"type": "stdio", "command": command, "args": arguments})
            }
            (Some((command, arguments)), _) => json!({"command": command, "args": arguments}),
            (None, Self::ClaudeCode | Self::Vscode) => json!({"type": "http", "url": url}),
            (None, Self::Gemini) => json!({"httpUrl": url}),
            (None, Self::ClaudeDesktop | Self::Cursor | Self::Codex) => json!({"url": url}),
        };
        // How the entry refers to the key.
        let reference = match self {
            Self::ClaudeCode => "${TOOLHUB_TOKEN}".to_owned(),
            Self::Cursor => "${env:TOOLHUB_TOKEN}".into(),
            Self::Vscode => format!("${{input:{input}}}"),
            Self::Gemini => "$TOOLHUB_TOKEN".into(),
            Self::ClaudeDesktop | Self::Codex => String::new(),
        };
        match (self, &hub.program) {
            _ if !hub.requires_key => {}
            (Self::ClaudeDesktop, _) => {}
            (Self::Codex, Some(_)) => entry["env_vars"] = json!(["TOOLHUB_TOKEN"]),
            (Self::Codex, None) => entry["bearer_token_env_var"] = "TOOLHUB_TOKEN".into(),
            (_, Some(_)) => entry["env"] = json!({"TOOLHUB_TOKEN": reference}),
            (_, None) => entry["headers"] = json!({"Authorization": format!("Bearer {reference}")}),
        }
        let table = match self {
            Self::Vscode => "servers",
            Self::Codex => "mcp_servers",
            Self::ClaudeDesktop | Self::ClaudeCode | Self::Cursor | Self::Gemini => "mcpServers",
        };
        let prompt =
            json!({"type": "promptString", "id": input, "description": "API key of Toolhub", "password": true});
        Snippet {
            is_toml: self == Self::Codex,
            path: [table.into(), name.into()],
            entry,
            inputs: (self == Self::Vscode && hub.requires_key).then(|| json!([prompt])),
        }
    }

    /// What the user has to do besides.
    fn notes(self, hub: &HubAddress) -> Vec<String> {
        let mut notes = Vec::new();
        if hub.program.is_none() {
            notes.push("the client needs a running server: toolhub serve".into());
            if let Some(thread) = &hub.thread {
                notes.push(format!("the thread must exist; a call with `--thread {thread}` creates it"));
            }
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
        self.merge_into("").unwrap_or_default()
    }

    /// The document with the snippet.
    ///
    /// # Errors
    /// Why the document cannot be changed.
    fn merge_into(&self, before: &str) -> Result<String, String> {
        let Self { path, entry, .. } = self;
        if self.is_toml {
            return toml_section::set(before, path, |existing| entry_merge::merge(existing, entry));
        }
        let path = path.each_ref().map(String::as_str);
        let existing = json_merge::get(before, &path)?;
        let merged = entry_merge::merge(existing.as_ref(), entry);
        let text = match existing.as_ref().and_then(Value::as_object) {
            // Member by member, so that the layout and the comments of the others stay.
            Some(existing) if existing.keys().all(|name| merged.get(name).is_some()) => {
                let changed = merged.as_object().into_iter().flatten();
                let mut changed = changed.filter(|(name, value)| existing.get(*name) != Some(value));
                changed.try_fold(before.to_owned(), |text, (name, value)| {
                    json_merge::set(&text, &[path[0], path[1], name], value)
                })?
            }
            _ => json_merge::set(before, &path, &merged)?,
        };
        match &self.inputs {
            Some(inputs) => json_merge::add(&text, &["inputs"], inputs),
            None => Ok(text),
        }
    }
}
