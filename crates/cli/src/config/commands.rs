//! The commands on the config: `config check`, `show`, `schema`, `path`, and `init`.
//!
//! In: parsed arguments, and where to write. Out: an exit code. Data goes to `out`, notes to `err`; with `--json` both are JSON.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::{Args, Subcommand};
use serde_json::json;

use super::{
    Backend,
    dry_run::{dry_run_with_warnings, find_obstacles},
    init::{self, InitError, Starter},
    load::{LoadOptions, LoadedConfig, load, load_partially},
    problem::{self, Problems, RenderStyle},
    schema, show,
};

/// Success.
const EXIT_OK: u8 = 0;
/// The config or the command line is invalid.
const EXIT_INVALID: u8 = 2;

/// Flags that select the config; the same for every command that needs one.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ConfigFlags {
    /// Config file, instead of the nearest toolhub.toml in this folder or above (TOOLHUB_CONFIG)
    #[arg(long, value_name = "FILE", global = true, hide_short_help = true)]
    pub(crate) config: Option<PathBuf>,
    /// Set a key of the config, e.g. --set server.port=8080; repeatable
    #[arg(long, value_name = "KEY=VALUE", global = true, hide_short_help = true)]
    pub(crate) set: Vec<String>,
    /// File with variables, one NAME=value per line; variables of the process take precedence
    #[arg(long, value_name = "FILE", global = true, hide_short_help = true)]
    pub(crate) env_file: Option<PathBuf>,
}

impl ConfigFlags {
    /// The options to load the config with, in this process.
    ///
    /// # Errors
    /// When the working folder cannot be determined.
    pub(crate) fn load_options(&self) -> io::Result<LoadOptions> {
        let Self { config, set, env_file } = self.clone();
        Ok(LoadOptions { config, set, env_file, ..LoadOptions::from_process()? })
    }
}

/// The commands on the config.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the config and report every problem
    Check,
    /// Print the effective values; secrets are masked
    Show {
        /// Also print where each value comes from
        #[arg(long)]
        origin: bool,
    },
    /// Print the JSON Schema of toolhub.toml, for completion and validation in editors
    Schema,
    /// Print the config files in use, highest precedence first
    Path,
}

/// Flags of `init`.
#[derive(Debug, Args)]
pub(crate) struct InitFlags {
    /// Include the tools of the demo (default)
    #[arg(long, conflicts_with = "empty")]
    pub(crate) demo: bool,
    /// Include no tools
    #[arg(long)]
    pub(crate) empty: bool,
    /// Overwrite an existing toolhub.toml
    #[arg(long)]
    pub(crate) force: bool,
}

/// Where a command writes its output.
pub(crate) struct CommandOutput<'a> {
    pub(crate) out: &'a mut dyn Write,
    pub(crate) err: &'a mut dyn Write,
    pub(crate) json: bool,
}

/// Runs a command on the config.
///
/// # Errors
/// When the output cannot be written.
pub(crate) async fn run(
    command: &ConfigCommand,
    options: &LoadOptions,
    output: &mut CommandOutput<'_>,
) -> io::Result<u8> {
    let result = match command {
        ConfigCommand::Check => check(options, output).await,
        ConfigCommand::Show { origin } => show(options, *origin, output),
        ConfigCommand::Schema => print_schema(output),
        ConfigCommand::Path => print_paths(options, output),
    };
    // The reader has closed the pipe, as in `config schema | head`.
    result.or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(EXIT_OK) } else { Err(error) })
}

/// `config check`.
///
/// # Errors
/// When the output cannot be written.
pub(crate) async fn check(options: &LoadOptions, output: &mut CommandOutput<'_>) -> io::Result<u8> {
    let (loaded, mut problems) = load_partially(options);
    let mut warnings = Vec::new();
    if let Some(loaded) = &loaded {
        // A tool that cannot be registered may have an obstacle too, so that both are told at once.
        let (found, more) = dry_run_with_warnings(loaded, &problems).await;
        let obstacles = find_obstacles(loaded, &problems);
        problems.extend(found.into_iter().chain(obstacles));
        warnings = loaded.config.warnings.iter().cloned().chain(more).collect();
    }
    let loaded = match loaded.filter(|_| problems.is_empty()).ok_or_else(|| Problems::new(problems)) {
        Ok(loaded) => loaded,
        Err(problems) if output.json => {
            writeln!(output.out, "{}", json!({ "ok": false, "problems": problems.to_json() }))?;
            return Ok(EXIT_INVALID);
        }
        Err(problems) => return report_problems(&problems, output),
    };
    if output.json {
        let files: Vec<String> = loaded.files.iter().map(|file| file.display().to_string()).collect();
        writeln!(output.out, "{}", json!({ "ok": true, "files": files, "problems": [], "warnings": warnings }))?;
    } else {
        writeln!(output.out, "{}", summary(options, &loaded))?;
        for warning in &warnings {
            writeln!(output.err, "warning: {warning}")?;
        }
    }
    Ok(EXIT_OK)
}

/// One line about a valid config.
fn summary(options: &LoadOptions, loaded: &LoadedConfig) -> String {
    let relative = |path: &std::path::Path| path.strip_prefix(&options.folder).unwrap_or(path).display().to_string();
    let files: Vec<String> = loaded.files.iter().rev().map(|file| relative(file)).collect();
    let validity = if files.is_empty() {
        "no config file; the defaults are valid".to_owned()
    } else {
        format!("{} {} valid", files.join(" and "), if files.len() == 1 { "is" } else { "are" })
    };
    let config = &loaded.config;
    let store = match &config.store.backend {
        Backend::Memory { .. } => "in memory".into(),
        Backend::Sqlite { path, .. } => format!("in {}", relative(path)),
        Backend::Redis(server) => format!("at {}", server.address),
    };
    let count = |number: usize, noun: &str| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
    let tools = count(config.tools.len(), "tool");
    let servers = match config.mcp_servers.len() {
        0 => String::new(),
        servers => format!(", {}", count(servers, "MCP server")),
    };
    format!("{validity}: {tools}{servers}, store {store}, address {}:{}", config.server.host, config.server.port)
}

/// `config show`.
///
/// # Errors
/// When the output cannot be written.
pub(crate) fn show(options: &LoadOptions, origin: bool, output: &mut CommandOutput<'_>) -> io::Result<u8> {
    let loaded = match load(options) {
        Ok(loaded) => loaded,
        Err(problems) => return report_problems(&problems, output),
    };
    match (output.json, origin) {
        (true, true) => writeln!(output.out, "{}", json!({ "items": show::values_with_origins(&loaded) }))?,
        (true, false) => writeln!(output.out, "{}", show::masked_values(&loaded))?,
        (false, _) => write!(output.out, "{}", show::to_toml(&loaded, origin))?,
    }
    Ok(EXIT_OK)
}

/// `config schema`.
///
/// # Errors
/// When the output cannot be written.
pub(crate) fn print_schema(output: &mut CommandOutput<'_>) -> io::Result<u8> {
    writeln!(output.out, "{:#}", schema::file_schema())?;
    Ok(EXIT_OK)
}

/// `config path`.
///
/// # Errors
/// When the output cannot be written.
pub(crate) fn print_paths(options: &LoadOptions, output: &mut CommandOutput<'_>) -> io::Result<u8> {
    let (options, _) = options.with_env_file();
    let files: Vec<String> = options.files().into_iter().rev().map(|(path, _)| path.display().to_string()).collect();
    if output.json {
        writeln!(output.out, "{}", json!({ "files": files }))?;
        return Ok(EXIT_OK);
    }
    for file in &files {
        writeln!(output.out, "{file}")?;
    }
    if files.is_empty() {
        let user = options.user_file().map_or_else(String::new, |path| format!(", and no {}", path.display()));
        writeln!(output.err, "no toolhub.toml in {} or above{user}; using the defaults", options.folder.display())?;
        writeln!(output.err, "help: `toolhub init` creates one")?;
    }
    Ok(EXIT_OK)
}

/// `init`.
///
/// # Errors
/// When the output cannot be written.
pub(crate) fn init(flags: &InitFlags, options: &LoadOptions, output: &mut CommandOutput<'_>) -> io::Result<u8> {
    let starter = if flags.empty { Starter::Empty } else { Starter::Demo };
    match init::write(&options.folder, starter, flags.force) {
        Ok(written) => {
            let names: Vec<String> = written.iter().map(|path| path.display().to_string()).collect();
            if output.json {
                writeln!(output.out, "{}", json!({ "written": names }))?;
            } else {
                names.iter().try_for_each(|name| writeln!(output.out, "wrote {name}"))?;
                writeln!(output.err, "next: `toolhub config check`, then `toolhub serve`")?;
            }
            Ok(EXIT_OK)
        }
        Err(InitError::Exists(path)) => {
            let message = format!("{} already exists", path.display());
            report_error(
                &message,
                "show it with `toolhub config show`, or overwrite it with `toolhub init --force`",
                output,
            )
        }
        Err(InitError::Io(path, error)) => {
            report_error(&format!("cannot write {}: {error}", path.display()), "check the permissions", output)
        }
    }
}

/// Prints the problems of the config.
///
/// # Errors
/// When the output cannot be written.
pub(crate) fn report_problems(problems: &Problems, output: &mut CommandOutput<'_>) -> io::Result<u8> {
    if output.json {
        let error = json!({
            "code": "config_invalid",
            "message": format!("the config has {} problems", problems.len()),
            "hint": "toolhub config check",
            "problems": problems.to_json(),
        });
        writeln!(output.err, "{}", json!({ "error": error }))?;
    } else {
        write!(output.err, "{}", problem::render(problems, RenderStyle::Coloured))?;
    }
    Ok(EXIT_INVALID)
}

fn report_error(message: &str, hint: &str, output: &mut CommandOutput<'_>) -> io::Result<u8> {
    if output.json {
        writeln!(output.err, "{}", json!({ "error": { "code": "usage", "message": message, "hint": hint } }))?;
    } else {
        writeln!(output.err, "error: {message}\n  help: {hint}")?;
    }
    Ok(EXIT_INVALID)
}
