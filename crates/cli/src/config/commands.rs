//! The commands about the config: `config check`, `show`, `schema`, `path`, and `init`.
//!
//! In: parsed arguments, and where to write. Out: an exit code. Data goes to `out`, talk to `err`; with `--json` both are JSON.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::{Args, Subcommand};
use serde_json::json;

use super::{
    Backend,
    dry_run::dry_run,
    init::{self, InitError, Starter},
    load::{LoadOptions, LoadedConfig, load},
    problem::{self, Problems, RenderStyle},
    schema, show,
};

/// All is well.
const EXIT_OK: u8 = 0;
/// The config or the command line is wrong.
const EXIT_INVALID: u8 = 2;

/// Where the config comes from; the same for every command that needs one.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ConfigFlags {
    /// The config file, instead of the nearest toolhub.toml upward (TOOLHUB_CONFIG)
    #[arg(long, value_name = "FILE", global = true, hide_short_help = true)]
    pub(crate) config: Option<PathBuf>,
    /// Set a key of the config, such as --set server.port=8080; may be said more than once
    #[arg(long, value_name = "KEY=VALUE", global = true, hide_short_help = true)]
    pub(crate) set: Vec<String>,
    /// A file of variables, NAME=value on each line; those of the process weigh more
    #[arg(long, value_name = "FILE", global = true, hide_short_help = true)]
    pub(crate) env_file: Option<PathBuf>,
}

impl ConfigFlags {
    /// What is asked for, in this process.
    ///
    /// # Errors
    /// When the working folder is gone.
    pub(crate) fn load_options(&self) -> io::Result<LoadOptions> {
        let Self { config, set, env_file } = self.clone();
        Ok(LoadOptions { config, set, env_file, ..LoadOptions::from_process()? })
    }
}

/// The commands about the config.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Say everything that is wrong with the config
    Check,
    /// Print every value that holds; secrets are masked
    Show {
        /// Say where each value comes from
        #[arg(long)]
        origin: bool,
    },
    /// Print the JSON Schema of toolhub.toml, from which editors complete and check
    Schema,
    /// Print the files that are read, the one that weighs most first
    Path,
}

/// What `init` is asked for.
#[derive(Debug, Args)]
pub(crate) struct InitFlags {
    /// Begin with the tools of the demo (this is the default)
    #[arg(long, conflicts_with = "empty")]
    pub(crate) demo: bool,
    /// Begin without tools
    #[arg(long)]
    pub(crate) empty: bool,
    /// Replace a toolhub.toml that is there
    #[arg(long)]
    pub(crate) force: bool,
}

/// Where a command writes.
pub(crate) struct CommandOutput<'a> {
    pub(crate) out: &'a mut dyn Write,
    pub(crate) err: &'a mut dyn Write,
    pub(crate) json: bool,
}

/// Runs a command about the config.
///
/// # Errors
/// When nothing can be written.
pub(crate) async fn run(command: &ConfigCommand, asked: &LoadOptions, to: &mut CommandOutput<'_>) -> io::Result<u8> {
    let ran = match command {
        ConfigCommand::Check => check(asked, to).await,
        ConfigCommand::Show { origin } => show(asked, *origin, to),
        ConfigCommand::Schema => print_schema(to),
        ConfigCommand::Path => print_paths(asked, to),
    };
    // Whoever reads it has seen enough: `config schema | head`.
    ran.or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(EXIT_OK) } else { Err(error) })
}

/// `config check`.
///
/// # Errors
/// When nothing can be written.
pub(crate) async fn check(asked: &LoadOptions, to: &mut CommandOutput<'_>) -> io::Result<u8> {
    let checked = match load(asked) {
        Ok(loaded) => dry_run(&loaded).await.map(|()| loaded),
        Err(problems) => Err(problems),
    };
    let loaded = match checked {
        Ok(loaded) => loaded,
        Err(problems) if to.json => {
            writeln!(to.out, "{}", json!({ "ok": false, "problems": problems.to_json() }))?;
            return Ok(EXIT_INVALID);
        }
        Err(problems) => return report_problems(&problems, to),
    };
    if to.json {
        let files: Vec<String> = loaded.files.iter().map(|file| file.display().to_string()).collect();
        writeln!(to.out, "{}", json!({ "ok": true, "files": files, "problems": [], "words": loaded.config.warnings }))?;
    } else {
        writeln!(to.out, "{}", summary(asked, &loaded))?;
        for word in &loaded.config.warnings {
            writeln!(to.err, "{word}")?;
        }
    }
    Ok(EXIT_OK)
}

/// What a config that is right comes to.
fn summary(asked: &LoadOptions, loaded: &LoadedConfig) -> String {
    let near = |path: &std::path::Path| path.strip_prefix(&asked.folder).unwrap_or(path).display().to_string();
    let files: Vec<String> = loaded.files.iter().rev().map(|file| near(file)).collect();
    let what = if files.is_empty() {
        "there is no config file, and the defaults are right".to_owned()
    } else {
        format!("{} {} right", files.join(" and "), if files.len() == 1 { "is" } else { "are" })
    };
    let config = &loaded.config;
    let store = match &config.store.backend {
        Backend::Memory => "in memory".into(),
        Backend::Sqlite { path, .. } => format!("in {}", near(path)),
    };
    let tools = config.tools.len();
    let plural = if tools == 1 { "" } else { "s" };
    format!("{what}: {tools} tool{plural}, records {store}, to listen on {}:{}", config.server.host, config.server.port)
}

/// `config show`.
///
/// # Errors
/// When nothing can be written.
pub(crate) fn show(asked: &LoadOptions, origin: bool, to: &mut CommandOutput<'_>) -> io::Result<u8> {
    let loaded = match load(asked) {
        Ok(loaded) => loaded,
        Err(problems) => return report_problems(&problems, to),
    };
    match (to.json, origin) {
        (true, true) => writeln!(to.out, "{}", json!({ "items": show::values_with_origins(&loaded) }))?,
        (true, false) => writeln!(to.out, "{}", show::masked_values(&loaded))?,
        (false, _) => write!(to.out, "{}", show::to_toml(&loaded, origin))?,
    }
    Ok(EXIT_OK)
}

/// `config schema`.
///
/// # Errors
/// When nothing can be written.
pub(crate) fn print_schema(to: &mut CommandOutput<'_>) -> io::Result<u8> {
    writeln!(to.out, "{:#}", schema::file_schema())?;
    Ok(EXIT_OK)
}

/// `config path`.
///
/// # Errors
/// When nothing can be written.
pub(crate) fn print_paths(asked: &LoadOptions, to: &mut CommandOutput<'_>) -> io::Result<u8> {
    let (asked, _) = asked.with_env_file();
    let files: Vec<String> = asked.files().into_iter().rev().map(|(path, _)| path.display().to_string()).collect();
    if to.json {
        writeln!(to.out, "{}", json!({ "files": files }))?;
        return Ok(EXIT_OK);
    }
    for file in &files {
        writeln!(to.out, "{file}")?;
    }
    if files.is_empty() {
        let user = asked.user_file().map_or_else(String::new, |path| format!(", and no {}", path.display()));
        writeln!(to.err, "there is no toolhub.toml in {} or above{user}; the defaults hold", asked.folder.display())?;
        writeln!(to.err, "help: `toolhub init` writes one")?;
    }
    Ok(EXIT_OK)
}

/// `init`.
///
/// # Errors
/// When nothing can be written to `to`.
pub(crate) fn init(flags: &InitFlags, asked: &LoadOptions, to: &mut CommandOutput<'_>) -> io::Result<u8> {
    let starter = if flags.empty { Starter::Empty } else { Starter::Demo };
    match init::write(&asked.folder, starter, flags.force) {
        Ok(written) => {
            let names: Vec<String> = written.iter().map(|path| path.display().to_string()).collect();
            if to.json {
                writeln!(to.out, "{}", json!({ "written": names }))?;
            } else {
                names.iter().try_for_each(|name| writeln!(to.out, "wrote {name}"))?;
                writeln!(to.err, "next: `toolhub config check`, then `toolhub serve`")?;
            }
            Ok(EXIT_OK)
        }
        Err(InitError::Exists(path)) => {
            let message = format!("{} is there already", path.display());
            report_error(&message, "read it with `toolhub config show`, or replace it with `toolhub init --force`", to)
        }
        Err(InitError::Io(path, error)) => {
            report_error(&format!("{} cannot be written: {error}", path.display()), "check who may write there", to)
        }
    }
}

/// Says what is wrong with the config, and that nothing was done.
///
/// # Errors
/// When nothing can be written.
pub(crate) fn report_problems(problems: &Problems, to: &mut CommandOutput<'_>) -> io::Result<u8> {
    if to.json {
        let error = json!({
            "code": "config_invalid",
            "message": format!("the config has {} problems", problems.len()),
            "hint": "toolhub config check",
            "problems": problems.to_json(),
        });
        writeln!(to.err, "{}", json!({ "error": error }))?;
    } else {
        write!(to.err, "{}", problem::render(problems, RenderStyle::Coloured))?;
    }
    Ok(EXIT_INVALID)
}

fn report_error(message: &str, hint: &str, to: &mut CommandOutput<'_>) -> io::Result<u8> {
    if to.json {
        writeln!(to.err, "{}", json!({ "error": { "code": "usage", "message": message, "hint": hint } }))?;
    } else {
        writeln!(to.err, "error: {message}\n  help: {hint}")?;
    }
    Ok(EXIT_INVALID)
}
