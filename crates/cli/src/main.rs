//! The binary `toolhub`: its commands, and what they have in common.
//!
//! In: what was typed. Out: what was asked for, and a number that says how it went. This file is the list of commands;
//! each has a room in `commands`.
#![forbid(unsafe_code)]
#![allow(clippy::result_large_err, reason = "a command fails once, and then it ends")]

mod approval_prompt;
mod build_info;
mod builtin;
mod client;
mod commands;
mod config;
mod demo;
mod editor;
mod exit;
mod failure;
mod global;
mod local_hub;
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
        approvals, backup, call, calls, chat, completions, config_command, demo_words, doctor, import, keys, restore,
        runs, state, stub_llm, threads, tools, version,
    },
    exit::Exit,
    failure::Failure,
    global::GlobalFlags,
    output::Printer,
    session::Session,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The one place through which an AI agent's tool calls pass.
#[derive(Debug, Parser)]
#[command(
    name = "toolhub",
    version,
    arg_required_else_help = true,
    after_help = "Commands ask a running server, or open the store of this folder themselves. Begin with `toolhub demo`."
)]
struct Cli {
    #[command(flatten)]
    global: GlobalFlags,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a toolhub.toml to begin with
    Init(config_command::InitFlags),
    /// Serve the tools of the config over HTTP
    Serve(serve::Serve),
    /// Serve a few tools to try out, in a folder that goes away; nothing to configure
    Demo(serve::Demo),
    /// Call a tool
    Call(call::Call),
    /// Talk to an agent that uses the tools
    Chat(chat::Chat),
    /// Look at tools and change their statuses
    #[command(subcommand, visible_alias = "tool")]
    Tools(tools::ToolsCommand),
    /// Answer calls that wait for a person
    #[command(subcommand, alias = "approval")]
    Approvals(approvals::ApprovalsCommand),
    /// Look at calls that were made, and cancel those that run
    #[command(subcommand)]
    Calls(calls::CallsCommand),
    /// Look at runs of agents, and cancel those that are open
    #[command(subcommand, alias = "run")]
    Runs(runs::RunsCommand),
    /// Look at conversations and their tools
    #[command(subcommand, alias = "thread")]
    Threads(threads::ThreadsCommand),
    /// Look at what tools remember, and change it
    #[command(subcommand, alias = "states")]
    State(state::StateCommand),
    /// Check, show and describe the config
    #[command(subcommand)]
    Config(config_command::ConfigCommand),
    /// Write tools into the config that are described elsewhere
    #[command(subcommand)]
    Import(import::ImportCommand),
    /// Make, list and revoke the keys of clients
    #[command(subcommand, alias = "key")]
    Keys(keys::KeysCommand),
    /// Make a backup of the store
    Backup(backup::BackupArgs),
    /// Put a backup in the place of the store
    Restore(restore::Restore),
    /// Check config, model, store, address and clock; say how to mend what is wrong
    Doctor(doctor::Doctor),
    /// Serve a scripted model, for demos and tests without a key
    StubLlm(stub_llm::StubLlm),
    /// Print what lets a shell complete commands
    Completions(completions::Completions),
    /// Print the version
    Version(version::Version),
    /// Count words, as a tool of the demo
    #[command(hide = true)]
    DemoWords,
}

fn main() -> ExitCode {
    commands::guard::run_if_requested().unwrap_or_else(async_main)
}

#[tokio::main]
async fn async_main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return report_usage_error(&error).into(),
    };
    let show = cli.global.printer();
    let session = Session::new(cli.global, show.clone());
    // A command that is cut off is dropped, which cancels what it waited for; what it opened is closed all the same.
    let ends_itself =
        matches!(cli.command, Command::Serve(_) | Command::Demo(_) | Command::Chat(_) | Command::StubLlm(_));
    let ended = tokio::select! {
        ended = run(&session, cli.command) => ended,
        Ok(()) = tokio::signal::ctrl_c(), if !ends_itself => {
            session.handle_interrupt().await;
            Ok(Exit::Interrupted)
        }
    };
    let interrupted = matches!(ended, Ok(Exit::Interrupted));
    tokio::select! {
        () = session.close(interrupted) => {}
        // Asked twice, it waits for nothing. A server listens for signals itself.
        Ok(()) = tokio::signal::ctrl_c(), if !ends_itself => {}
    }
    let exit = ended.unwrap_or_else(|failure| {
        failure.print(&show);
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
        Command::Approvals(approvals) => approvals::run(session, approvals).await,
        Command::Calls(calls) => calls::run(session, calls).await,
        Command::Runs(runs) => runs::run(session, runs).await,
        Command::Threads(threads) => threads::run(session, threads).await,
        Command::State(state) => state::run(session, state).await,
        Command::Config(config) => config_command::run(session, &config).await,
        Command::Import(import) => import::run(session, import).await,
        Command::Keys(keys) => keys::run(session, keys).await,
        Command::Backup(_) => backup::run(session).await,
        Command::Restore(restore) => restore::run(session, &restore),
        Command::Doctor(_) => doctor::run(session).await,
        Command::StubLlm(stub) => stub_llm::run(session, stub).await,
        Command::Completions(completions) => completions::run(session, &completions, &mut Cli::command()),
        Command::Version(_) => version::run(session),
        Command::DemoWords => demo_words::run(),
    }
}

/// What was typed is no command. Help that was asked for comes this way too.
fn report_usage_error(error: &clap::Error) -> Exit {
    let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    // The flags could not be read, so this one is looked for by hand.
    let json = std::env::args().take_while(|word| word != "--").any(|word| word == "--json");
    if json && !asked {
        let text = error.render().to_string();
        let mut lines = text.lines();
        let message = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let tip = lines.filter_map(|line| line.trim().strip_prefix("tip: ")).map(String::from);
        let mut failure = Failure::usage(message);
        failure.help.extend(tip);
        failure.suggestions = clap_suggestions(error);
        failure.print(&Printer { json, ..Printer::default() });
    } else {
        // Nobody reads any more: then nobody misses it.
        let _ = error.print();
    }
    if asked { Exit::Success } else { Exit::Usage }
}

/// The words that may have been meant.
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
