//! `mcp`: adds, lists, inspects, restarts and removes MCP servers, approves changed definitions of their tools, and serves MCP clients.

mod add;
mod definition_diff;
mod export;
mod import;
mod remove;
mod view;

use std::time::Duration;

use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::{
    confirmation::confirm,
    paging::{self, Paging},
};
use crate::{client::Request, exit::Exit, failure::Failure, mcp_stdio, output::strip_hidden, session::Session};

/// Add, list, inspect, restart and remove MCP servers, and approve changed tools.
#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// Add an MCP server: to the running server, or to the config
    Add(Box<add::Add>),
    /// Remove an MCP server
    #[command(alias = "rm")]
    Remove(ServerName),
    /// List the MCP servers
    #[command(alias = "ls")]
    List,
    /// Show an MCP server and its tools
    #[command(alias = "show")]
    Get(ServerName),
    /// Close the connections of an MCP server and connect again at once
    Restart(ServerName),
    /// Print the last log lines of an MCP server
    Logs(Logs),
    /// Show the changed and new tools that wait for approval
    Diff(ServerName),
    /// Approve changed and new tools
    Approve(Approve),
    /// Add the MCP servers in the config of Claude, Cursor, VS Code, Gemini or Codex
    Import(import::Import),
    /// Print or write the config with which an MCP client uses this hub
    Export(export::ClientExport),
    /// Serve an MCP client on stdin and stdout
    Serve(ServeFlags),
}

impl McpCommand {
    /// Whether the command handles signals itself.
    pub(crate) fn handles_signals(&self) -> bool {
        matches!(self, Self::Serve(_))
    }
}

/// Serve an MCP client.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeFlags {
    /// Messages on stdin and stdout; over HTTP, `toolhub serve` serves MCP clients at /mcp
    #[arg(long, required = true)]
    stdio: bool,
}

/// An MCP server.
#[derive(Debug, clap::Args)]
pub(crate) struct ServerName {
    /// Name of the server
    name: String,
}

/// Print log lines.
#[derive(Debug, clap::Args)]
pub(crate) struct Logs {
    /// Name of the server
    name: String,
    /// Maximum number of lines
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    limit: u16,
}

/// Approve tools.
#[derive(Debug, clap::Args)]
pub(crate) struct Approve {
    /// Name of the server
    name: String,
    /// Tools, by their names at the server [default: all that wait]
    #[arg(value_name = "TOOL")]
    tools: Vec<String>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// How long to wait for the connection of a server that was restarted.
const RESTART_WAIT: Duration = Duration::from_secs(3);

/// How many lines fit on any screen.
const SCREEN_LINES: usize = 20;

pub(crate) async fn run(session: &Session, command: McpCommand) -> Result<Exit, Failure> {
    let printer = &session.printer;
    match command {
        McpCommand::List => list_servers(session).await,
        McpCommand::Get(ServerName { name }) => {
            let response = send(session, Request::get(["mcp-servers", &name]), "get", &name).await?;
            if printer.json {
                printer.print_json(&response.text());
            } else {
                printer.print(&view::render_server(&response.json()?, printer));
            }
            Ok(Exit::Success)
        }
        McpCommand::Add(args) => add::run(session, &args).await,
        McpCommand::Remove(name) => remove::run(session, &name).await,
        McpCommand::Import(args) => import::run(session, &args).await,
        McpCommand::Restart(ServerName { name }) => restart(session, &name).await,
        McpCommand::Logs(Logs { name, limit }) => {
            let request = Request::get(["mcp-servers", &name, "logs"]).query("limit", Some(limit));
            let response = send(session, request, "logs", &name).await?;
            if printer.json {
                printer.print_json(&response.text());
                return Ok(Exit::Success);
            }
            let lines = response.items()?;
            if lines.is_empty() {
                printer.note("no log lines");
            }
            lines.iter().filter_map(Value::as_str).for_each(|line| printer.print(&strip_hidden(line)));
            Ok(Exit::Success)
        }
        McpCommand::Diff(ServerName { name }) => diff(session, &name).await,
        McpCommand::Approve(args) => approve(session, &args).await,
        McpCommand::Export(args) => export::run(session, &args),
        McpCommand::Serve(_) => mcp_stdio::run(&session.global).await,
    }
}

async fn list_servers(session: &Session) -> Result<Exit, Failure> {
    let Some(servers) = paging::fetch_items(session, Request::get(["mcp-servers"]), &Paging::all()).await? else {
        return Ok(Exit::Success);
    };
    if servers.is_empty() {
        session.printer.note("no MCP servers; add a section [mcp_servers.NAME] to the config");
    } else {
        session.printer.print(&view::render_list(&servers, &session.printer));
    }
    Ok(Exit::Success)
}

async fn restart(session: &Session, name: &str) -> Result<Exit, Failure> {
    let response = send(session, Request::post(["mcp-servers", name, "restart"]), "restart", name).await?;
    let printer = &session.printer;
    if printer.json {
        printer.print_json(&response.text());
        return Ok(Exit::Success);
    }
    let before = response.json()?;
    let has_restarted = |server: &Value| server["connection"] == "connected" && server["since"] != before["since"];
    let server = poll_server(session, name, RESTART_WAIT, has_restarted).await?;
    printer.print(&view::render_connection(&server, printer));
    if !has_restarted(&server) {
        printer.note(&format!("not connected again yet: toolhub mcp get {name}{}", session.target_flags()));
    }
    Ok(Exit::Success)
}

async fn diff(session: &Session, name: &str) -> Result<Exit, Failure> {
    let response = send(session, Request::get(["mcp-servers", name, "changes"]), "diff", name).await?;
    let printer = &session.printer;
    if printer.json {
        printer.print_json(&response.text());
        return Ok(Exit::Success);
    }
    let changes = response.items()?;
    if changes.is_empty() {
        printer.note("nothing waits for approval");
        return Ok(Exit::Success);
    }
    printer.print(&definition_diff::render_changes(&changes, printer));
    printer.note(&format!("toolhub mcp approve {name} [TOOL…]{}", session.target_flags()));
    Ok(Exit::Success)
}

/// Approves the definitions that it shows, and no others.
async fn approve(session: &Session, args: &Approve) -> Result<Exit, Failure> {
    let (printer, Approve { name, tools, yes }) = (&session.printer, args);
    let changes = send(session, Request::get(["mcp-servers", name, "changes"]), "approve", name).await?.items()?;
    let is_meant = |change: &&Value| tools.is_empty() || tools.iter().any(|tool| change["name"] == **tool);
    let changes: Vec<Value> = changes.iter().filter(is_meant).cloned().collect();
    let waiting =
        changes.iter().filter_map(|change| Some((change["name"].as_str()?.to_owned(), change["digest"].clone())));
    // A tool that does not wait has no digest: the server refuses it, whatever happens meanwhile.
    let mut digests: Map<String, Value> = tools.iter().map(|tool| (tool.clone(), "".into())).collect();
    digests.extend(waiting);
    if digests.is_empty() {
        match printer.json {
            true => printer.print_json(&json!({"approved": []}).to_string()),
            false => printer.note("nothing waits for approval"),
        }
        return Ok(Exit::Success);
    }
    let all_wait = digests.len() == changes.len();
    let shown = definition_diff::render_changes(&changes, printer);
    if !printer.json && all_wait {
        printer.print(&shown);
    }
    if !yes && all_wait && !confirm_approval(session, args, changes.len(), shown.lines().count()).await? {
        printer.note("nothing was approved");
        return Ok(Exit::Success);
    }
    let request = Request::post(["mcp-servers", name, "approve"]).body(json!({"digests": digests}));
    let response = send(session, request, "approve", name).await?;
    if printer.json {
        printer.print_json(&response.text());
        return Ok(Exit::Success);
    }
    let approved = response.json()?;
    let approved = approved["approved"].as_array().into_iter().flatten().filter_map(Value::as_str);
    approved.for_each(|tool| printer.print(&format!("approved  {}", strip_hidden(tool))));
    Ok(Exit::Success)
}

/// Asks whether the definitions that were shown are approved. What was shown may have left the screen, so the question names its
/// length.
async fn confirm_approval(session: &Session, args: &Approve, count: usize, lines: usize) -> Result<bool, Failure> {
    let command: Vec<&str> =
        ["toolhub mcp approve", &args.name].into_iter().chain(args.tools.iter().map(String::as_str)).collect();
    let refusal = Failure::usage(format!("approving tools of `{}` needs a confirmation", args.name)).help(format!(
        "{} --yes{}",
        command.join(" "),
        session.target_flags()
    ));
    if session.printer.json {
        // Nothing was shown.
        return Err(refusal);
    }
    let definitions = if count == 1 { "this definition".to_owned() } else { format!("these {count} definitions") };
    let length = if lines > SCREEN_LINES { format!(", shown above in {lines} lines") } else { String::new() };
    let question = format!("approve {definitions}{length}?");
    confirm(session, &question, refusal).await
}

/// Sends a request about a server, and adds the corrected command to a refusal.
async fn send(
    session: &Session,
    request: Request,
    command: &str,
    name: &str,
) -> Result<crate::client::ApiResponse, Failure> {
    session.send_checked(request).await.map_err(|mut failure| {
        let closest = failure.suggestions.first().cloned();
        match (failure.code.as_str(), closest) {
            ("mcp_server_not_found", Some(closest)) => {
                failure.help.clear();
                failure
                    .help(format!("a server with a similar name exists: `{closest}`"))
                    .help(format!("toolhub mcp {command} {closest}"))
            }
            ("mcp_server_not_found", None) => failure.help("toolhub mcp list"),
            ("tool_not_found", Some(closest)) => failure
                .help(format!("a tool with a similar name waits: `{closest}`"))
                .help(format!("toolhub mcp approve {name} {closest}")),
            ("tool_not_found", None) => failure.help(format!("toolhub mcp diff {name}")),
            ("conflict", _) if command == "approve" => {
                failure.help(format!("nothing was approved; look at the difference again: toolhub mcp diff {name}"))
            }
            _ => failure,
        }
    })
}

/// The server when it meets the condition, or as it is after the wait.
async fn poll_server(
    session: &Session,
    name: &str,
    wait: Duration,
    is_met: impl Fn(&Value) -> bool,
) -> Result<Value, Failure> {
    let end = tokio::time::Instant::now() + wait;
    loop {
        let server = session.send_checked(Request::get(["mcp-servers", name])).await?.json()?;
        if is_met(&server) || tokio::time::Instant::now() >= end {
            return Ok(server);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
