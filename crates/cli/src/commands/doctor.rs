//! `doctor`: looks at everything that must be right before toolhub can serve, and says how to mend what is not.
//!
//! In: the config and this machine. Out: a line for each check. It changes nothing.

mod checks;
mod model;

use anstyle::{AnsiColor, Style};
use serde_json::json;

use crate::{
    exit::Exit,
    failure::Failure,
    output::{Show, plain},
    session::Session,
};

/// Check config, model, store, address and clock.
#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {}

/// How one check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Good,
    Odd,
    Bad(Exit),
}

/// One check.
#[derive(Debug)]
struct Check {
    name: &'static str,
    found: Found,
    detail: String,
    /// What to do about it.
    fix: Option<String>,
}

impl Check {
    fn new(name: &'static str, found: Found, detail: impl Into<String>) -> Self {
        Self { name, found, detail: detail.into(), fix: None }
    }

    fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

pub(crate) async fn run(session: &Session) -> Result<Exit, Failure> {
    let checks = checks::all(session).await;
    if session.show.json {
        let all = checks.iter().map(
            |check| json!({"name": check.name, "status": word(check.found), "detail": check.detail, "fix": check.fix}),
        );
        session.show.document(&json!({ "checks": all.collect::<Vec<_>>() }).to_string());
    } else {
        session.show.data(&lines(&checks, &session.show));
    }
    let worst = checks.iter().find_map(|check| if let Found::Bad(exit) = check.found { Some(exit) } else { None });
    Ok(worst.unwrap_or(Exit::Fine))
}

fn word(found: Found) -> &'static str {
    match found {
        Found::Good => "ok",
        Found::Odd => "warning",
        Found::Bad(_) => "error",
    }
}

fn lines(checks: &[Check], show: &Show) -> String {
    let widest = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for check in checks {
        let (sign, letter, style) = match check.found {
            Found::Good => ("✔", "+", AnsiColor::Green.on_default()),
            Found::Odd => ("!", "!", AnsiColor::Yellow.on_default()),
            Found::Bad(_) => ("✖", "x", AnsiColor::Red.on_default()),
        };
        let sign = if show.ascii { letter } else { sign };
        let (name, bold) = (check.name, Style::new().bold());
        let word = format!("{style}{sign} {:<7}{style:#}", word(check.found));
        text += &format!("{word}  {bold}{name:<widest$}{bold:#}  {}\n", plain(&check.detail));
        for line in check.fix.iter().flat_map(|fix| fix.lines()) {
            text += &format!("{:>pad$}  fix: {}\n", "", plain(line), pad = 11 + widest);
        }
    }
    text
}
