//! The flags every command takes.

use std::time::Duration;

use clap::{ArgAction, Args};
use toolhub::config::unit::parse_cli_duration;

use crate::{
    config::{LoadOptions, commands::ConfigFlags},
    failure::Failure,
    output::{Color, Printer},
};

/// What may be said with every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalFlags {
    #[command(flatten)]
    pub(crate) flags: ConfigFlags,
    /// Ask this server [default: the one that serves this config, or the store itself]
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "TOOLHUB_URL",
        hide_env_values = true,
        hide_short_help = true
    )]
    pub(crate) server: Option<String>,
    /// The key to show to the server; better in the variable than here, where others can see it
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
    /// Print only what was asked for
    #[arg(short, long, global = true, conflicts_with = "verbose", hide_short_help = true)]
    pub(crate) quiet: bool,
    /// Say more about what is done
    #[arg(short, long, global = true, action = ArgAction::Count, hide_short_help = true)]
    pub(crate) verbose: u8,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN", hide_short_help = true)]
    pub(crate) color: Color,
    /// Ask no questions; a call that needs a person ends with exit code 6
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) no_input: bool,
    /// The conversation
    #[arg(long, global = true, value_name = "ID")]
    pub(crate) thread: Option<String>,
    /// How long to wait, such as 30s or 2m
    #[arg(long, global = true, value_name = "TIME", value_parser = time, hide_short_help = true)]
    pub(crate) timeout: Option<Duration>,
}

impl GlobalFlags {
    /// Which config is asked for.
    ///
    /// # Errors
    /// When the working folder is gone.
    pub(crate) fn load_options(&self) -> Result<LoadOptions, Failure> {
        self.flags
            .load_options()
            .map_err(|error| Failure::unexpected(format!("the working folder cannot be found: {error}")))
    }

    /// How to show things.
    pub(crate) fn printer(&self) -> Printer {
        Printer::detect(self.json, self.quiet, self.verbose > 0, self.color)
    }
}

/// A time with its unit, as in a config.
///
/// # Errors
/// In words: what was expected.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let bare = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.');
    parse_cli_duration(text).ok_or_else(|| match bare {
        true => format!("a time needs its unit: {text}s, {text}m, {text}h or {text}d"),
        false => "a time is a number and its unit: 500ms, 30s, 5m, 2h or 1d".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_needs_its_unit() {
        assert_eq!(time("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(time("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(time("30").unwrap_err(), "a time needs its unit: 30s, 30m, 30h or 30d");
        for wrong in ["", "s", "-1s", "1 week", "1e9d", "99999999999999999999d"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
