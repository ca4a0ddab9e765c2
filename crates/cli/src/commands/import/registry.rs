//! `import registry`: converts the tools of an old registry to sections of the config.
//!
//! In: the path of `__registry__.toml`. Out: sections `[tools.NAME]` and `[toolsets.NAME]`, printed or appended to the config. The config
//! reads the same registry without conversion with `imports.registry`.

use std::path::Path;

use serde_json::json;

use super::config_file::{self, AppendFailure, NewSections};
use crate::{
    config::{self, ConvertedRegistry, LoadOptions},
    exit::Exit,
    failure::Failure,
    output::strip_hidden,
    session::Session,
};

#[derive(Debug, clap::Args)]
pub(crate) struct RegistryArgs {
    /// Registry: configs/tools/__registry__.toml
    file: String,
    /// Only print the sections; write nothing (default)
    #[arg(long, conflicts_with = "write")]
    dry_run: bool,
    /// Append the sections to toolhub.toml
    #[arg(long)]
    write: bool,
}

pub(super) async fn run(session: &Session, args: &RegistryArgs) -> Result<Exit, Failure> {
    let options = session.global.load_options()?;
    let registry = options.folder.join(&args.file);
    let base = match config_file::project_file(&options) {
        Ok(file) => file.parent().unwrap_or(Path::new(".")).to_owned(),
        Err(failure) if args.write => return Err(failure),
        Err(_) => options.folder.clone(),
    };
    let existing = config_file::existing_variables(&options);
    let converted = config::convert_registry(&registry, &base, &options.folder, &existing)
        .map_err(|problems| Failure::from_config_problems(&problems))?;
    if converted.tools.is_empty() && converted.toolsets.is_empty() {
        let failure = Failure::usage(strip_hidden(&format!("{} leads to no tools", args.file)));
        return Err(converted.notes.iter().take(10).fold(failure, |failure, note| failure.help(strip_hidden(note))));
    }
    let written = if args.write { Some(append(&options, &registry, &converted).await?) } else { None };
    show(session, &options, &converted, written.as_deref());
    Ok(Exit::Success)
}

/// Appends the sections to the config file.
async fn append(
    options: &LoadOptions,
    registry: &Path,
    converted: &ConvertedRegistry,
) -> Result<std::path::PathBuf, Failure> {
    let (loaded, _) = config::load_partially(options);
    let read = loaded.map(|loaded| loaded.registry_files).unwrap_or_default();
    if registry.canonicalize().is_ok_and(|registry| read.contains(&registry)) {
        return Err(Failure::usage("the config reads this registry already, so its tools would be there twice")
            .help("remove it from `registry` in [imports] first; --dry-run prints the sections without writing"));
    }
    let tools: Vec<&str> = converted.tools.iter().map(String::as_str).collect();
    let sets: Vec<&str> = converted.toolsets.iter().map(String::as_str).collect();
    let new = [
        NewSections { table: "tools", noun: "a tool", names: &tools },
        NewSections { table: "toolsets", noun: "a toolset", names: &sets },
    ];
    let appended = config_file::append_sections(options, &new, &converted.text).await;
    appended.map_err(|AppendFailure { error, existing }| match existing {
        Some(_) => error.help("or remove it first; --dry-run prints the sections without writing"),
        None => error,
    })
}

fn show(session: &Session, options: &LoadOptions, converted: &ConvertedRegistry, written: Option<&Path>) {
    let printer = &session.printer;
    let ConvertedRegistry { tools, toolsets, text, variables, notes } = converted;
    let unset: Vec<&String> = variables.iter().filter(|name| options.environment.get(name).is_none()).collect();
    if printer.json {
        let file = written.map(|file| file.display().to_string());
        let report = json!({
            "tools": tools, "toolsets": toolsets, "file": file, "toml": text, "variables": unset, "notes": notes,
        });
        return printer.print_json(&report.to_string());
    }
    match written {
        Some(file) => printer.print_untrusted(&format!("added to {}: {}", file.display(), tools.join(", "))),
        None => printer.print_untrusted(text.trim_end()),
    }
    for note in notes {
        printer.note(&strip_hidden(note));
    }
    if !unset.is_empty() {
        let names: Vec<&str> = unset.iter().map(|name| name.as_str()).collect();
        let text = format!(
            "move these keys to variables before toolhub starts, and delete them from the old files: {}",
            names.join(", ")
        );
        printer.note(&text);
    }
    if written.is_some() {
        printer.note(&format!("start or reload the server: toolhub reload{}", session.target_flags()));
    }
}
