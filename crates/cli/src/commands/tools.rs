//! `tools`: which tools there are, how each stands, and what an operator says about them.

mod explain;
mod list;
mod show;
mod status;

use clap::Subcommand;

use super::call;
use crate::{client::Request, exit::Exit, failure::Failure, session::Session};

/// Look at tools and change their statuses.
#[derive(Debug, Subcommand)]
pub(crate) enum ToolsCommand {
    /// List the tools; with --thread, as that thread sees them
    #[command(alias = "ls")]
    List(list::List),
    /// Show one tool
    #[command(alias = "get")]
    Show(show::ShowTool),
    /// Say why a tool is offered or not, and what would change that
    #[command(alias = "why")]
    Explain(explain::Explain),
    /// Print the tools as a model provider wants them; with --thread, those it is offered
    Export(Export),
    /// Forget what is held against a tool: failures and maintenance; with --thread, in that thread
    Reset(status::Reset),
    /// Take a tool out of service, or bring it back with --off
    Maintenance(status::Maintenance),
    /// Call a tool, as `toolhub call`
    Call(call::Call),
}

/// Print the tools as a model provider wants them.
#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    /// Whose form
    #[arg(long, value_parser = ["openai", "openai-responses", "anthropic", "gemini", "mcp"])]
    format: String,
}

pub(crate) async fn run(session: &Session, tools: ToolsCommand) -> Result<Exit, Failure> {
    match tools {
        ToolsCommand::List(asked) => list::run(session, asked).await,
        ToolsCommand::Show(asked) => show::run(session, &asked).await,
        ToolsCommand::Explain(asked) => explain::run(session, &asked).await,
        ToolsCommand::Export(asked) => export(session, &asked).await,
        ToolsCommand::Reset(asked) => status::reset(session, &asked).await,
        ToolsCommand::Maintenance(asked) => status::set_maintenance(session, &asked).await,
        ToolsCommand::Call(asked) => call::run(session, asked).await,
    }
}

async fn export(session: &Session, asked: &Export) -> Result<Exit, Failure> {
    let request = Request::get(["tools", "export"])
        .query("format", Some(&asked.format))
        .query("threadId", session.global.thread.as_deref());
    let answer = session.send_checked(request).await?;
    if session.printer.json {
        session.printer.print_json(&answer.text());
    } else {
        // What goes into a request to the provider is the list alone.
        session.printer.print_json(&answer.json()?["tools"].to_string());
    }
    Ok(Exit::Success)
}

/// A refusal about a tool, with the command that would have been right.
fn with_help(mut failure: Failure, command: &str, tool: &str) -> Failure {
    if failure.code != "tool_not_found" {
        return failure;
    }
    failure.help.clear();
    failure.message = format!("no tool named `{tool}`");
    match failure.suggestions.first().cloned() {
        Some(closest) => failure
            .help(format!("a tool with a similar name exists: `{closest}`"))
            .help(format!("toolhub tools {command} {closest}")),
        None => failure.help("toolhub tools list"),
    }
}
