//! `tools`: lists and inspects tools, and changes their status.

mod explain;
mod insight;
mod list;
mod show;
mod status;

use clap::Subcommand;

use super::{call, events, threads};
use crate::{client::Request, exit::Exit, failure::Failure, session::Session};

/// List and inspect tools, and change their status.
#[derive(Debug, Subcommand)]
pub(crate) enum ToolsCommand {
    /// List tools; with --thread, with their status in the thread
    #[command(alias = "ls")]
    List(list::List),
    /// Show a tool
    #[command(alias = "get")]
    Show(show::ShowTool),
    /// Explain why a tool is offered or not, and what would change that
    #[command(alias = "why")]
    Explain(explain::Explain),
    /// Print the tools in the format of a model provider; with --thread, only those offered there
    Export(Export),
    /// Clear failures and maintenance of a tool; with --thread, in the thread
    Reset(status::Reset),
    /// Put a tool in maintenance, or end it with --off
    Maintenance(status::Maintenance),
    /// Disable a tool for all threads, until it is enabled again
    Disable(status::Switch),
    /// Enable a tool that was disabled
    Enable(status::Switch),
    /// Show which tools must succeed before others
    Deps(insight::Deps),
    /// Show the statistics of a tool
    Stats(insight::Stats),
    /// Print changes of status and availability as they happen
    Watch(Watch),
    /// Call a tool, same as `toolhub call`
    Call(call::Call),
}

/// Print the tools in the format of a model provider.
#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    /// Format of the provider
    #[arg(long, value_parser = ["openai", "openai-responses", "anthropic", "gemini", "mcp"])]
    format: String,
}

/// Print changes of status and availability.
#[derive(Debug, clap::Args)]
pub(crate) struct Watch {
    /// Only this tool
    tool: Option<String>,
    #[command(flatten)]
    bound: events::EventBound,
}

/// The events of `tools watch`.
const WATCHED: &str = "tool.status.changed,tool.availability.changed,tool.registered,tool.unregistered";

pub(crate) async fn run(session: &Session, tools: ToolsCommand) -> Result<Exit, Failure> {
    match tools {
        ToolsCommand::List(args) => list::run(session, args).await,
        ToolsCommand::Show(args) => show::run(session, &args).await,
        ToolsCommand::Explain(args) => explain::run(session, &args).await,
        ToolsCommand::Export(args) => export(session, &args).await,
        ToolsCommand::Reset(args) => status::reset(session, &args).await,
        ToolsCommand::Maintenance(args) => status::set_maintenance(session, &args).await,
        ToolsCommand::Disable(args) => status::switch(session, &args, "disable").await,
        ToolsCommand::Enable(args) => status::switch(session, &args, "enable").await,
        ToolsCommand::Deps(args) => insight::deps(session, &args).await,
        ToolsCommand::Stats(args) => insight::stats(session, &args).await,
        ToolsCommand::Watch(args) => events::follow(session, Some(WATCHED), args.tool.as_deref(), &args.bound).await,
        ToolsCommand::Call(args) => call::run(session, args).await,
    }
}

async fn export(session: &Session, args: &Export) -> Result<Exit, Failure> {
    let request = Request::get(["tools", "export"])
        .query("format", Some(&args.format))
        .query("threadId", session.global.thread.as_deref());
    if let Some(thread) = &session.global.thread {
        // The API offers an unknown thread what a new one would get; here a wrong name is more likely.
        let found = session.send_checked(Request::get(["threads", thread])).await;
        found.map_err(threads::with_not_found_help)?;
    }
    let response = session.send_checked(request).await?;
    if session.printer.json {
        session.printer.print_json(&response.text());
    } else {
        // Only the list goes into a request to the provider.
        session.printer.print_json(&response.json()?["tools"].to_string());
    }
    Ok(Exit::Success)
}

/// Adds the corrected command to a refusal.
fn with_help(failure: Failure, command: &str, tool: &str) -> Failure {
    with_not_found_help(failure, tool, |closest| format!("toolhub tools {command} {closest}"))
}

/// Adds what to do to the refusal of a missing tool. `corrected`: the command with the closest name.
pub(super) fn with_not_found_help(mut failure: Failure, tool: &str, corrected: impl FnOnce(&str) -> String) -> Failure {
    if failure.code != "tool_not_found" {
        return failure;
    }
    failure.help.clear();
    match failure.suggestions.first().cloned() {
        Some(closest) => {
            failure.message = format!("no tool is named `{tool}`");
            failure.help(format!("a tool with a similar name exists: `{closest}`")).help(corrected(&closest))
        }
        // The message may say why the tool of an MCP server is missing.
        None => failure.help("toolhub tools list"),
    }
}
