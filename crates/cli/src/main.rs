//! The binary `toolhub`: argument parsing and dispatch to the commands.
//!
//! In: the command line. Out: the command's output and its exit code. This file is the list of commands; each has a module in
//! `commands`.
#![forbid(unsafe_code)]
#![allow(clippy::result_large_err, reason = "a command returns at most one failure, just before it exits")]

mod approval_prompt;
mod arguments;
mod build_info;
mod builtin;
mod client;
mod command_hints;
mod commands;
mod config;
mod demo;
mod editor;
mod exit;
mod failure;
mod global;
mod line_editor;
mod local_hub;
mod mcp_stdio;
mod output;
mod serve;
mod session;
mod temp_folder;

use std::process::ExitCode;

use clap::{
    CommandFactory, Parser, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::{
    commands::{
        alerts, approvals, audit, backup, call, calls, chat, clock, completions, config_command, demo_words, doctor,
        events, import, keys, mcp, nodes, reload, restore, runs, state, store, stub_llm, threads, tools, version,
    },
    exit::Exit,
    failure::Failure,
    global::GlobalFlags,
    output::Printer,
    session::Session,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs the tool calls of AI agents: validation, approvals, limits, state, crash recovery.
#[derive(Debug, Parser)]
#[command(
    name = "toolhub",
    version,
    arg_required_else_help = true,
    after_help = "Commands use a running server, or else open the store of this folder. Start with `toolhub demo`."
)]
struct Cli {
    #[command(flatten)]
    global: GlobalFlags,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a starter toolhub.toml
    Init(config_command::InitFlags),
    /// Serve the tools of the config over HTTP
    Serve(serve::Serve),
    /// Serve a few sample tools from a temporary folder; needs no config
    Demo(serve::Demo),
    /// Call a tool
    Call(call::Call),
    /// Chat with an agent that uses the tools
    Chat(chat::Chat),
    /// List and inspect tools, and change their status
    #[command(subcommand, visible_alias = "tool")]
    Tools(tools::ToolsCommand),
    /// List and inspect MCP servers, approve changed tools, and serve MCP clients
    #[command(subcommand)]
    Mcp(mcp::McpCommand),
    /// List and answer pending approvals
    #[command(subcommand, alias = "approval")]
    Approvals(approvals::ApprovalsCommand),
    /// List and inspect calls, and cancel running ones
    #[command(subcommand)]
    Calls(calls::CallsCommand),
    /// List and inspect agent runs, and cancel open ones
    #[command(subcommand, alias = "run")]
    Runs(runs::RunsCommand),
    /// List, inspect, reset and delete threads (conversations)
    #[command(subcommand, alias = "thread")]
    Threads(threads::ThreadsCommand),
    /// List, read and change the state of tools
    #[command(subcommand, alias = "states")]
    State(state::StateCommand),
    /// Print events as they happen; with --thread, only those of the thread
    Events(events::EventsArgs),
    /// List targets of alerts, test them, and show what was delivered
    #[command(subcommand, alias = "alert")]
    Alerts(alerts::AlertsCommand),
    /// List changes and denied requests, newest first
    Audit(audit::AuditArgs),
    /// List the nodes that share the store, and which of them are alive
    Nodes(nodes::NodesArgs),
    /// Make the server read its config again
    Reload(reload::ReloadArgs),
    /// Accept the machine's clock after a jump
    #[command(subcommand)]
    Clock(clock::ClockCommand),
    /// Check, show and describe the config
    #[command(subcommand)]
    Config(config_command::ConfigCommand),
    /// Import tools into the config, e.g. from an OpenAPI document
    #[command(subcommand)]
    Import(import::ImportCommand),
    /// Create, list and revoke API keys
    #[command(subcommand, alias = "key")]
    Keys(keys::KeysCommand),
    /// Back up the store
    Backup(backup::BackupArgs),
    /// Replace the store with a backup
    Restore(restore::Restore),
    /// Copy all records into another store
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Check config, model, store, server address and clock, and suggest fixes
    Doctor(doctor::Doctor),
    /// Serve a scripted model, for demos and tests without a key
    StubLlm(stub_llm::StubLlm),
    /// Print a shell completion script
    Completions(completions::Completions),
    /// Print the version
    Version(version::Version),
    /// Count words; a tool of the demo
    #[command(hide = true)]
    DemoWords,
}

fn main() -> ExitCode {
    let hidden = commands::guard::run_if_requested().or_else(demo::serve_mcp_if_requested);
    hidden.unwrap_or_else(|| {
        if let Err(error) = toolhub::command::deny_inspection() {
            eprintln!("warning: programs run as tools can read the environment of this process: {error}");
        }
        async_main()
    })
}

#[tokio::main]
async fn async_main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return report_usage_error(&error).into(),
    };
    let printer = cli.global.printer();
    let session = Session::new(cli.global, printer.clone());
    // An interrupted command is dropped, which cancels what it waited for; what it opened is still closed below.
    let handles_signals = match &cli.command {
        Command::Mcp(mcp) => mcp.handles_signals(),
        other => matches!(other, Command::Serve(_) | Command::Demo(_) | Command::Chat(_) | Command::StubLlm(_)),
    };
    let result = tokio::select! {
        result = run(&session, cli.command) => result,
        Ok(()) = tokio::signal::ctrl_c(), if !handles_signals => {
            session.handle_interrupt().await;
            Ok(Exit::Interrupted)
        }
    };
    let interrupted = matches!(result, Ok(Exit::Interrupted));
    let (target_flags, thread) = (session.target_flags(), session.global.thread.clone());
    if result.is_ok() {
        session.print_footer();
    }
    tokio::select! {
        () = session.close(interrupted) => {}
        // A second Ctrl-C skips the shutdown. A server handles signals itself.
        Ok(()) = tokio::signal::ctrl_c(), if !handles_signals => {}
    }
    let exit = result.unwrap_or_else(|failure| {
        let failure = failure.with_flags(&target_flags, thread.as_deref());
        failure.print(&printer);
        failure.exit
    });
    exit.into()
}

async fn run(session: &Session, command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Init(init) => config_command::init(session, &init),
        Command::Serve(serve) => serve::serve(&session.global, &session.printer, serve).await,
        Command::Demo(demo) => serve::demo(&session.global, &session.printer, demo).await,
        Command::Call(call) => call::run(session, call).await,
        Command::Chat(chat) => chat::run(session, chat).await,
        Command::Tools(tools) => tools::run(session, tools).await,
        Command::Mcp(mcp) => mcp::run(session, mcp).await,
        Command::Approvals(approvals) => approvals::run(session, approvals).await,
        Command::Calls(calls) => calls::run(session, calls).await,
        Command::Runs(runs) => runs::run(session, runs).await,
        Command::Threads(threads) => threads::run(session, threads).await,
        Command::State(state) => state::run(session, state).await,
        Command::Events(args) => events::run(session, &args).await,
        Command::Alerts(command) => alerts::run(session, command).await,
        Command::Audit(args) => audit::run(session, &args).await,
        Command::Nodes(args) => nodes::run(session, &args).await,
        Command::Reload(args) => reload::run(session, &args).await,
        Command::Clock(command) => clock::run(session, &command).await,
        Command::Config(config) => config_command::run(session, &config).await,
        Command::Import(import) => import::run(session, import).await,
        Command::Keys(keys) => keys::run(session, keys).await,
        Command::Backup(args) => backup::run(session, &args).await,
        Command::Restore(restore) => restore::run(session, &restore),
        Command::Store(command) => store::run(session, command).await,
        Command::Doctor(_) => doctor::run(session).await,
        Command::StubLlm(stub) => stub_llm::run(session, stub).await,
        Command::Completions(completions) => completions::run(session, &completions, &mut Cli::command()),
        Command::Version(_) => version::run(session),
        Command::DemoWords => demo_words::run(),
    }
}

/// Reports that the command line cannot be parsed. Requested help arrives as an error too.
fn report_usage_error(error: &clap::Error) -> Exit {
    let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    // Parsing failed, so look for the flag by hand.
    let json = std::env::args().take_while(|word| word != "--").any(|word| word == "--json");
    if json && !is_help {
        let text = error.render().to_string();
        let mut lines = text.lines();
        let message = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let tip = lines.filter_map(|line| line.trim().strip_prefix("tip: ")).map(String::from);
        let mut failure = Failure::usage(message);
        failure.help.extend(tip);
        failure.suggestions = clap_suggestions(error);
        failure.print(&Printer { json, ..Printer::default() });
    } else {
        // Printing fails only when the pipe is closed.
        let _ = error.print();
    }
    if is_help { Exit::Success } else { Exit::Usage }
}

/// clap's suggestions: similar names.
fn clap_suggestions(error: &clap::Error) -> Vec<String> {
    let kinds = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    let found = kinds.into_iter().filter_map(|kind| error.get(kind));
    found
        .flat_map(|value| match value {
            ContextValue::String(word) => vec![word.clone()],
            ContextValue::Strings(words) => words.clone(),
            _ => Vec::new(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_commands_is_sound() {
        Cli::command().debug_assert();
    }
}
