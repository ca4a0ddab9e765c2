//! The approval prompt: its keys, the parser of replies, and a reader of stdin lines.
//!
//! In: a line. Out: a [`PromptReply`]. Showing the prompt and acting on the reply is up to the caller.

use std::{io, thread};

use serde_json::Value;
use tokio::sync::mpsc;

/// The keys, in one line.
pub(crate) const PROMPT: &str = "[y] once  [t] thread  [a] always  [e] edit  [n] deny  [?]";
/// The keys, explained.
pub(crate) const HELP: &str = "\
y  yes, this once
t  yes, and from now on in this thread, if the call has one
a  yes, and from now on in every thread
e  yes, with other arguments: e folder=/tmp/old changes one, e {\"folder\": \"/tmp/old\"} gives them all
n  no; text after it is the reason given to the model: n not today";
/// Prompt after a bare `e`.
pub(crate) const EDIT_PROMPT: &str = "key=value to change, or all arguments as JSON; Enter to go back:";

/// A parsed reply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PromptReply {
    /// Yes, this once.
    Once,
    /// Yes, from now on in this thread.
    Thread,
    /// Yes, from now on in every thread.
    Always,
    /// Yes, with these arguments.
    Edited(Value),
    /// Yes, with these arguments changed: words such as `folder=/tmp/old`.
    Changed(Vec<String>),
    /// Yes, with arguments that are still to be typed.
    Edit,
    /// No, with an optional reason.
    Deny(Option<String>),
    /// Explain the keys.
    Help,
    /// An empty line.
    Empty,
    /// Not a reply; says why.
    Invalid(String),
}

/// Parses a reply; the end of input denies the call.
pub(crate) fn parse_reply(line: Option<&str>) -> PromptReply {
    let Some(line) = line else { return PromptReply::Deny(Some("no answer: end of input".into())) };
    let line = line.trim();
    let (letter, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (letter.to_lowercase().as_str(), rest.trim()) {
        ("y" | "yes", "") => PromptReply::Once,
        ("t", "") => PromptReply::Thread,
        ("a", "") => PromptReply::Always,
        ("e", "") => PromptReply::Edit,
        ("e", arguments) => parse_edited_arguments(arguments),
        ("n" | "no", "") => PromptReply::Deny(None),
        ("n" | "no", why) => PromptReply::Deny(Some(why.into())),
        ("?", "") => PromptReply::Help,
        ("", _) => PromptReply::Empty,
        _ => PromptReply::Invalid(format!("`{line}` is not one of the answers; ? explains them")),
    }
}

/// Parses the line typed at [`EDIT_PROMPT`].
pub(crate) fn parse_edited_arguments(text: &str) -> PromptReply {
    if text.trim().is_empty() {
        return PromptReply::Empty;
    }
    let text = text.trim();
    if !text.starts_with(['{', '[', '"']) && text.contains('=') {
        return split_words(text).map_or_else(|why| PromptReply::Invalid(why.into()), PromptReply::Changed);
    }
    match text.parse::<Value>() {
        Ok(arguments) => PromptReply::Edited(arguments),
        Err(error) => PromptReply::Invalid(format!(
            "that is neither key=value nor JSON ({error}); write it like folder=/tmp/old or {{\"folder\": \"/tmp/old\"}}"
        )),
    }
}

/// Splits a line at spaces; quotes keep spaces in a word, as in a shell.
fn split_words(line: &str) -> Result<Vec<String>, &'static str> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in line.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.push(c),
            None if matches!(c, '\'' | '"') => quote = Some(c),
            None if c.is_whitespace() => words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty())),
            None => word.push(c),
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    if quote.is_some() { Err("a quote is not closed") } else { Ok(words) }
}

/// Lines of stdin, each read only when it is requested, because in between an editor may own the terminal. They are read on a
/// detached OS thread that ends with the process: a blocking read cannot be cancelled, and the runtime would wait for a blocking
/// task at shutdown.
pub(crate) struct StdinLines {
    read_requests: std::sync::mpsc::Sender<()>,
    lines: mpsc::Receiver<String>,
    /// A read is already in progress, started by a `next` that was dropped.
    read_pending: bool,
}

impl StdinLines {
    /// Starts the reader thread.
    pub(crate) fn spawn_reader() -> Self {
        let (request_tx, request_rx) = std::sync::mpsc::channel();
        let (line_tx, lines) = mpsc::channel(1);
        thread::spawn(move || {
            for () in request_rx {
                let mut line = String::new();
                match io::stdin().read_line(&mut line) {
                    Ok(0) => return,
                    Ok(_) => {}
                    // Invalid UTF-8 counts as an empty line, so the prompt is shown again.
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => line.clear(),
                    Err(_) => return,
                }
                if line_tx.blocking_send(line.trim_end_matches(['\n', '\r']).to_owned()).is_err() {
                    return;
                }
            }
        });
        Self { read_requests: request_tx, lines, read_pending: false }
    }

    /// Whether a line is being read for a `next` that was dropped: the following one gets it.
    pub(crate) fn is_reading(&self) -> bool {
        self.read_pending
    }

    /// The next line; `None` at the end of input.
    pub(crate) async fn next(&mut self) -> Option<String> {
        if !self.read_pending {
            self.read_requests.send(()).ok()?;
            self.read_pending = true;
        }
        let line = self.lines.recv().await;
        self.read_pending = false;
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(line: &str, expected: &PromptReply) {
        assert_eq!(parse_reply(Some(line)), *expected, "{line}");
    }

    #[test]
    fn a_letter_is_an_answer() {
        check("y", &PromptReply::Once);
        check(" Y ", &PromptReply::Once);
        check("t", &PromptReply::Thread);
        check("a", &PromptReply::Always);
        check("n", &PromptReply::Deny(None));
        check("n  not today", &PromptReply::Deny(Some("not today".into())));
        check("e", &PromptReply::Edit);
        check("e {\"folder\": \"x\"}", &PromptReply::Edited(json!({"folder": "x"})));
        check(
            "e folder=/tmp/x why='too old'",
            &PromptReply::Changed(vec!["folder=/tmp/x".into(), "why=too old".into()]),
        );
        check("?", &PromptReply::Help);
        check("", &PromptReply::Empty);
    }

    #[test]
    fn what_is_no_answer_never_becomes_a_yes() {
        for line in ["yy", "y please", "always", "t a", "e {", "e folder", "e a='b", "ok"] {
            assert!(matches!(parse_reply(Some(line)), PromptReply::Invalid(_)), "{line}");
        }
        assert!(matches!(parse_reply(None), PromptReply::Deny(Some(_))));
    }
}
