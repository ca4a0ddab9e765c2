//! The flags that every command accepts.

use std::time::Duration;

use clap::{ArgAction, Args};
use toolhub::{config::unit::parse_cli_duration, ids::ThreadId};

use crate::{
    config::{LoadOptions, commands::ConfigFlags},
    failure::Failure,
    output::{Color, Printer},
};

/// Flags of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalFlags {
    #[command(flatten)]
    pub(crate) flags: ConfigFlags,
    /// Use this server [default: the running server of this config, or else its store]
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "TOOLHUB_URL",
        hide_env_values = true,
        hide_short_help = true
    )]
    pub(crate) server: Option<String>,
    /// API key for the server; prefer the variable, because other users can see command lines
    #[arg(
        long,
        global = true,
        value_name = "KEY",
        env = "TOOLHUB_TOKEN",
        hide_env_values = true,
        hide_short_help = true
    )]
    pub(crate) token: Option<String>,
    /// Print one JSON document, for programs
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print only the result
    #[arg(short, long, global = true, conflicts_with = "verbose", hide_short_help = true)]
    pub(crate) quiet: bool,
    /// Print more details
    #[arg(short, long, global = true, action = ArgAction::Count, hide_short_help = true)]
    pub(crate) verbose: u8,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN", hide_short_help = true)]
    pub(crate) color: Color,
    /// Never prompt; a call that needs an approval ends with exit code 6
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) no_input: bool,
    /// Thread (conversation) to use
    #[arg(long, global = true, value_name = "ID", value_parser = parse_thread)]
    pub(crate) thread: Option<String>,
    /// How long to wait, e.g. 30s or 2m
    #[arg(long, global = true, value_name = "TIME", value_parser = parse_duration, hide_short_help = true)]
    pub(crate) timeout: Option<Duration>,
}

impl GlobalFlags {
    /// Which config to load.
    ///
    /// # Errors
    /// When the working folder cannot be determined.
    pub(crate) fn load_options(&self) -> Result<LoadOptions, Failure> {
        self.flags
            .load_options()
            .map_err(|error| Failure::unexpected(format!("cannot determine the working folder: {error}")))
    }

    /// The printer for these flags.
    pub(crate) fn printer(&self) -> Printer {
        Printer::detect(self.json, self.quiet, self.verbose > 0, self.color)
    }
}

/// Checks the id of a thread.
fn parse_thread(text: &str) -> Result<String, String> {
    ThreadId::new(text).map(|id| id.to_string()).map_err(|error| error.to_string())
}

/// Parses a duration with its unit, as in a config.
///
/// # Errors
/// A message that says what was expected.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let bare = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.');
    parse_cli_duration(text).ok_or_else(|| match bare {
        true => format!("a duration needs a unit: {text}s, {text}m, {text}h or {text}d"),
        false => "expected a number with a unit: 500ms, 30s, 5m, 2h or 1d".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_needs_its_unit() {
        assert_eq!(parse_duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("30").unwrap_err(), "a duration needs a unit: 30s, 30m, 30h or 30d");
        for wrong in ["", "s", "-1s", "1 week", "1e9d", "99999999999999999999d"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}
