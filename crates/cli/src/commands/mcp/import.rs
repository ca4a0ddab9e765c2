//! `mcp import`: takes over the MCP servers of another program's config.
//!
//! In: a file of Claude Desktop, Claude Code, Cursor, VS Code or Gemini (JSON), or of Codex (TOML). Out: sections `[mcp_servers.NAME]`,
//! printed or appended to the config. `config::foreign_mcp` reads the servers.

use std::fs;

use serde_json::json;

use crate::{
    commands::import::config_file,
    config::{self, ForeignConfig, LiteralSecrets},
    exit::Exit,
    failure::Failure,
    output::strip_hidden,
    session::Session,
};

/// Import MCP servers.
#[derive(Debug, clap::Args)]
pub(crate) struct Import {
    /// Config of another program: JSON of Claude, Cursor, VS Code or Gemini, or TOML of Codex
    file: String,
    /// Only print the sections; write nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) async fn run(session: &Session, args: &Import) -> Result<Exit, Failure> {
    let options = session.global.load_options()?;
    let unusable = |reason: &dyn std::fmt::Display| {
        Failure::usage(strip_hidden(&format!("cannot import {}: {reason}", args.file)))
            .help("name a file with `mcpServers`, `servers` or `mcp_servers`")
    };
    let text = fs::read_to_string(options.folder.join(&args.file)).map_err(|error| unusable(&error))?;
    let document = config::parse_foreign_mcp(&args.file, &text).map_err(|error| unusable(&error))?;
    let existing = config_file::existing_variables(&options);
    let ForeignConfig { sections, variables, notes } =
        config::read_foreign_mcp(&document, LiteralSecrets::Refer, &existing).map_err(|error| unusable(&error))?;
    if sections.is_empty() && notes.is_empty() {
        return Err(unusable(&"it has no MCP servers"));
    }
    let text = sections.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n");
    let names: Vec<&str> = sections.iter().map(|(name, _)| name.as_str()).collect();
    let written = match args.dry_run || sections.is_empty() {
        true => None,
        false => Some(config_file::append_mcp_servers(&options, &names, &text).await?),
    };
    let printer = &session.printer;
    let unset: Vec<&str> =
        variables.iter().map(String::as_str).filter(|name| options.environment.get(name).is_none()).collect();
    if printer.json {
        let file = written.as_ref().map(|file| file.display().to_string());
        let report = json!({"servers": names, "file": file, "toml": text, "variables": unset, "notes": notes});
        printer.print_json(&report.to_string());
        return Ok(Exit::Success);
    }
    match &written {
        Some(file) => printer.print_untrusted(&format!("added to {}: {}", file.display(), names.join(", "))),
        None if sections.is_empty() => printer.note("no server was imported"),
        None => printer.print_untrusted(text.trim_end()),
    }
    for note in &notes {
        printer.note(&strip_hidden(note));
    }
    if !unset.is_empty() {
        printer.note(&format!("set these variables before toolhub starts: {}", unset.join(", ")));
    }
    Ok(Exit::Success)
}
