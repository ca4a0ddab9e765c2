//! `doctor`: checks everything that `serve` needs, and suggests fixes.
//!
//! In: the config and this machine. Out: one line per check. It changes nothing.

mod checks;
mod mcp_servers;
mod model;

use anstyle::{AnsiColor, Style};
use serde_json::json;

use crate::{
    exit::Exit,
    failure::Failure,
    output::{Printer, strip_hidden},
    session::Session,
};

/// Check config, MCP servers, model, store, server address and clock.
#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckStatus {
    Pass,
    Warn,
    Fail(Exit),
}

/// A finished check.
#[derive(Debug)]
struct Check {
    name: &'static str,
    status: CheckStatus,
    detail: String,
    /// How to fix it.
    fix: Option<String>,
}

impl Check {
    fn new(name: &'static str, status: CheckStatus, detail: impl Into<String>) -> Self {
        Self { name, status, detail: detail.into(), fix: None }
    }

    fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

pub(crate) async fn run(session: &Session) -> Result<Exit, Failure> {
    let checks = checks::run_all(session).await;
    if session.printer.json {
        let all = checks.iter().map(
            |check| json!({"name": check.name, "status": status_word(check.status), "detail": check.detail, "fix": check.fix}),
        );
        session.printer.print_json(&json!({ "checks": all.collect::<Vec<_>>() }).to_string());
    } else {
        session.printer.print(&render(&checks, &session.printer));
    }
    let worst =
        checks.iter().find_map(|check| if let CheckStatus::Fail(exit) = check.status { Some(exit) } else { None });
    Ok(worst.unwrap_or(Exit::Success))
}

fn status_word(status: CheckStatus) -> &'static str {
    match status {
        CheckStatus::Pass => "ok",
        CheckStatus::Warn => "warning",
        CheckStatus::Fail(_) => "error",
    }
}

fn render(checks: &[Check], printer: &Printer) -> String {
    let widest = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for check in checks {
        let (symbol, ascii_symbol, style) = match check.status {
            CheckStatus::Pass => ("✔", "+", AnsiColor::Green.on_default()),
            CheckStatus::Warn => ("!", "!", AnsiColor::Yellow.on_default()),
            CheckStatus::Fail(_) => ("✖", "x", AnsiColor::Red.on_default()),
        };
        let symbol = if printer.ascii { ascii_symbol } else { symbol };
        let (name, bold) = (check.name, Style::new().bold());
        let word = format!("{style}{symbol} {:<7}{style:#}", status_word(check.status));
        text += &format!("{word}  {bold}{name:<widest$}{bold:#}  {}\n", strip_hidden(&check.detail));
        for line in check.fix.iter().flat_map(|fix| fix.lines()) {
            text += &format!("{:>pad$}  fix: {}\n", "", strip_hidden(line), pad = 11 + widest);
        }
    }
    text
}
