//! The failure of a command, and how it is reported.
//!
//! In: an API problem, or a message of our own. Out: text on stderr that leads to the right command, or one line of JSON.

use std::{
    fmt::Write as _,
    io::Write as _,
    ops::{Deref, DerefMut},
    time::Duration,
};

use anstyle::{AnsiColor, Style};
use serde_json::{Value, json};

use crate::{
    command_hints,
    config::{self, Problems},
    exit::Exit,
    output::{Printer, format_millis, strip_hidden},
};

const ERROR_STYLE: Style = AnsiColor::Red.on_default().bold();
const HELP_STYLE: Style = AnsiColor::Cyan.on_default();
const FIELD_STYLE: Style = Style::new().bold();

/// Why a command failed. The details are boxed to keep `Result`s small.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failure(Box<FailureDetails>);

/// The details of a failure.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FailureDetails {
    /// The stable error code.
    pub(crate) code: String,
    /// What went wrong, in one sentence.
    pub(crate) message: String,
    /// Errors of single fields, where the message covers several.
    pub(crate) field_errors: Vec<(String, String)>,
    /// Similar names.
    pub(crate) suggestions: Vec<String>,
    /// How to fix it: a sentence, then commands ready to run.
    pub(crate) help: Vec<String>,
    /// Where to find more: a label and a command.
    pub(crate) see_also: Option<(&'static str, String)>,
    /// The trace id of the request, for looking it up in a tracing backend.
    pub(crate) trace_id: Option<String>,
    /// After how many seconds to retry.
    pub(crate) retry_after: Option<u64>,
    /// The problems of a config, which are reported in their own formats: for people and as JSON.
    pub(crate) config_problems: Option<(String, Value)>,
    /// The exit code.
    pub(crate) exit: Exit,
}

impl Deref for Failure {
    type Target = FailureDetails;
    fn deref(&self) -> &FailureDetails {
        &self.0
    }
}

impl DerefMut for Failure {
    fn deref_mut(&mut self) -> &mut FailureDetails {
        &mut self.0
    }
}

impl Failure {
    /// A failure with a code that `exit.rs` maps to an exit code.
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Self {
        Self(Box::new(FailureDetails {
            code: code.into(),
            message: message.into(),
            field_errors: Vec::new(),
            suggestions: Vec::new(),
            help: Vec::new(),
            see_also: None,
            trace_id: None,
            retry_after: None,
            config_problems: None,
            exit: Exit::from_code(code),
        }))
    }

    /// The command line is invalid.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new("usage", message)
    }

    /// An unexpected error.
    pub(crate) fn unexpected(message: impl Into<String>) -> Self {
        Self::new("internal", message)
    }

    /// Adds a line of help.
    pub(crate) fn help(mut self, line: impl Into<String>) -> Self {
        self.help.push(line.into());
        self
    }

    /// Adds where to find more.
    pub(crate) fn see_also(mut self, label: &'static str, command: impl Into<String>) -> Self {
        self.see_also = Some((label, command.into()));
        self
    }

    /// Adds flags to the suggested commands, so that they concern the same hub and thread.
    pub(crate) fn with_flags(mut self, target: &str, thread: Option<&str>) -> Self {
        for line in &mut self.help {
            *line =
                line.lines().map(|line| command_hints::with_flags(line, target, thread)).collect::<Vec<_>>().join("\n");
        }
        if let Some((_, command)) = &mut self.see_also {
            *command = command_hints::with_flags(command, target, thread);
        }
        self
    }

    /// Prints the failure on stderr: as text, or as one line of JSON.
    pub(crate) fn print(&self, show: &Printer) {
        let _ = if show.json {
            writeln!(std::io::stderr().lock(), "{}", self.to_json_line())
        } else {
            write!(anstream::stderr(), "{}", self.to_text(show.ascii))
        };
    }

    /// The problems of a config.
    pub(crate) fn from_config_problems(problems: &Problems) -> Self {
        let count = problems.len();
        let message = format!("the config has {count} problem{}", if count == 1 { "" } else { "s" });
        let mut failure = Self::new("config_invalid", message).help("toolhub config check");
        failure.config_problems = Some((config::render(problems, config::RenderStyle::Coloured), problems.to_json()));
        failure
    }

    /// Converts `application/problem+json`.
    pub(crate) fn from_problem(problem: &Value, status: u16) -> Self {
        let text = |name: &str| problem[name].as_str().map(String::from);
        let code = text("code").unwrap_or_else(|| format!("http_{status}"));
        let message =
            text("detail").or_else(|| text("title")).unwrap_or_else(|| format!("the server answered {status}"));
        // A policy rule and a key without the scope share this code; only the former is about a call or an approval.
        let by_rule = code == "forbidden" && ["callId", "approvalId"].iter().any(|about| !problem[*about].is_null());
        let mut failure = Self::new(if by_rule { "forbidden_by_rule" } else { &code }, message);
        failure.code = code;
        failure.trace_id = text("traceId");
        match suggested_commands(&failure.code, problem) {
            Some(commands) => failure.help.extend(commands),
            None => failure.help.extend(text("hint")),
        }
        for name in problem["suggestions"].as_array().into_iter().flatten() {
            failure.suggestions.extend(name.as_str().map(String::from));
        }
        for error in problem["errors"].as_array().into_iter().flatten() {
            failure.field_errors.push(field_error(error));
        }
        if !failure.field_errors.is_empty() {
            // The field errors repeat the further lines.
            let first = failure.message.lines().next().unwrap_or_default().trim_end_matches(':').to_owned();
            failure.message = first;
        }
        failure
    }

    /// As one line of JSON.
    pub(crate) fn to_json_line(&self) -> String {
        let details = self.field_errors.iter().map(|(field, text)| json!({"field": field, "detail": text}));
        let details: Vec<Value> = details.collect();
        let see_also = self.see_also.iter().map(|(label, command)| format!("{label}: {command}"));
        let hint: Vec<String> = self.help.iter().cloned().chain(see_also).collect();
        let mut error = json!({
            "code": self.code,
            "message": self.message,
            "suggestions": self.suggestions,
            "hint": (!hint.is_empty()).then(|| hint.join("\n")),
            "traceId": self.trace_id,
        });
        if let Some(seconds) = self.retry_after {
            error["retryAfter"] = seconds.into();
        }
        if !details.is_empty() {
            error["errors"] = Value::from(details);
        }
        if let Some((_, problems)) = &self.config_problems {
            error["problems"] = problems.clone();
        }
        json!({ "error": error }).to_string()
    }

    /// As text for people; `ascii` where the terminal shows nothing else.
    pub(crate) fn to_text(&self, ascii: bool) -> String {
        if let Some((text, _)) = &self.config_problems {
            return text.clone();
        }
        let mut text = format!("{ERROR_STYLE}error:{ERROR_STYLE:#} {}\n", strip_hidden(&self.message));
        let widest = self.field_errors.iter().map(|(field, _)| strip_hidden(field).chars().count()).max().unwrap_or(0);
        let brackets = if ascii { ["|-", "`-"] } else { ["╭─", "╰─"] };
        for (at, (field, detail)) in self.field_errors.iter().enumerate() {
            let last = at + 1 == self.field_errors.len();
            let bracket = if last {
                brackets[1]
            } else if at == 0 || ascii {
                brackets[0]
            } else {
                "├─"
            };
            let field = strip_hidden(field);
            let gap = " ".repeat(widest - field.chars().count());
            let _ = writeln!(
                text,
                "  {bracket} {FIELD_STYLE}{field}{FIELD_STYLE:#}{gap}   {}",
                strip_hidden(detail).replace('\n', " ")
            );
        }
        let label = |at: usize| if at == 0 { format!("  {HELP_STYLE}help:{HELP_STYLE:#} ") } else { " ".repeat(8) };
        for (at, line) in self.help.iter().flat_map(|line| line.lines()).enumerate() {
            let _ = writeln!(text, "{}{}", label(at), strip_hidden(line));
        }
        // Some messages say it themselves, and more precisely.
        if let Some(seconds) = self.retry_after.filter(|_| !self.message.contains("retry in")) {
            let wait = format_millis(Duration::from_secs(seconds).as_secs_f64() * 1e3);
            let _ = writeln!(text, "  {HELP_STYLE}retry:{HELP_STYLE:#} in {wait}");
        }
        if let Some((label, command)) = &self.see_also {
            let _ = writeln!(text, "  {HELP_STYLE}{label}:{HELP_STYLE:#} {}", strip_hidden(command));
        }
        text
    }
}

/// Commands to run, for codes whose hint in the API names an HTTP path.
fn suggested_commands(code: &str, problem: &Value) -> Option<Vec<String>> {
    let run = problem["runId"].as_str();
    match (code, run) {
        ("run_open", Some(run)) => Some(vec![
            "the message was not sent; see what the run waits for, or cancel it:".into(),
            format!("toolhub runs show {run}"),
            format!("toolhub runs cancel {run}"),
        ]),
        ("already_resolved", _) if problem["state"] == "timed_out" => {
            let call = problem["callId"].as_str()?;
            Some(vec!["make the call again:".into(), format!("toolhub calls retry {call}")])
        }
        ("thread_busy", Some(run)) => Some(vec!["cancel its open run:".into(), format!("toolhub runs cancel {run}")]),
        ("thread_busy", None) => {
            Some(vec!["cancel its running calls:".into(), "toolhub calls list --status executing".into()])
        }
        _ => None,
    }
}

fn field_error(error: &Value) -> (String, String) {
    let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    let field = Some(text("field")).filter(|field| !field.is_empty()).unwrap_or_else(|| text("pointer"));
    let field = if field.is_empty() { "arguments".to_owned() } else { field };
    let suggestion = [text("suggestion"), text("hint")].into_iter().find(|suggestion| !suggestion.is_empty());
    let detail = suggestion.map_or_else(|| text("detail"), |more| format!("{}; {more}", text("detail")));
    (field, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain_text(failure: &Failure, ascii: bool) -> String {
        anstream::adapter::strip_str(&failure.to_text(ascii)).to_string()
    }

    #[test]
    fn a_problem_of_the_api_becomes_text_that_leads_on() {
        let problem = json!({"code": "arguments_invalid", "detail": "the arguments of `weather` are not valid",
            "errors": [{"pointer": "/city", "field": "city", "detail": "missing, required"},
                       {"pointer": "/cty", "field": "cty", "detail": "unknown", "suggestion": "did you mean `city`?"}]});
        let failure = Failure::from_problem(&problem, 422).see_also("schema", "toolhub tools show weather --schema");
        assert_eq!(
            plain_text(&failure, false),
            "error: the arguments of `weather` are not valid\n  ╭─ city   missing, required\n  \
             ╰─ cty    unknown; did you mean `city`?\n  schema: toolhub tools show weather --schema\n"
        );
        assert!(plain_text(&failure, true).contains("  |- city   missing"));
        assert_eq!(failure.exit, Exit::Usage);
    }

    #[test]
    fn a_rule_denies_and_a_key_lacks_the_right_under_one_name() {
        let parse = |problem: Value| Failure::from_problem(&problem, 403);
        let by_rule = parse(json!({"code": "forbidden", "detail": "no", "callId": "call_1"}));
        assert_eq!((by_rule.code.as_str(), by_rule.exit), ("forbidden", Exit::Denied));
        assert_eq!(parse(json!({"code": "forbidden", "detail": "no"})).exit, Exit::Auth);
    }

    #[test]
    fn what_is_open_is_ended_by_a_command() {
        let help_of = |problem: Value| Failure::from_problem(&problem, 409).help.join("\n");
        let hint = "POST /api/v1/runs/run_1/cancel ends it";
        for code in ["run_open", "thread_busy"] {
            let help = help_of(json!({"code": code, "detail": "no", "hint": hint, "runId": "run_1"}));
            assert!(help.contains("\ntoolhub runs cancel run_1") && !help.contains("POST"), "{help}");
        }
        assert!(help_of(json!({"code": "thread_busy", "detail": "no", "hint": hint})).contains("toolhub calls list"));
        assert_eq!(help_of(json!({"code": "call_ended", "detail": "no", "hint": hint})), hint);
    }

    #[test]
    fn programs_get_one_line_with_all_members() {
        let mut failure = Failure::new("tool_not_found", "no").help("a").help("b");
        failure.suggestions.push("weather".into());
        let line = failure.to_json_line();
        let expected = json!({"error": {"code": "tool_not_found", "message": "no", "suggestions": ["weather"],
            "hint": "a\nb", "traceId": null}});
        assert_eq!(line.parse::<Value>().unwrap(), expected);
        assert!(!line.contains('\n'));
    }
}
