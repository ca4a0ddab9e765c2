//! A question to the person at the keyboard about one call: the keys, what they mean, and the lines as they are typed.
//!
//! In: a line. Out: what it says. What is done about it, and where the question is shown, is for others to say.

use std::{io, thread};

use serde_json::Value;
use tokio::sync::mpsc;

/// The keys, in short.
pub(crate) const PROMPT: &str = "[y] once  [t] thread  [a] always  [e] edit  [n] deny  [?]";
/// The keys, in full.
pub(crate) const HELP: &str = "\
y  yes, this once
t  yes, and from now on in this thread
a  yes, and from now on in every thread
e  yes, with other arguments: e {\"folder\": \"/tmp/old\"}
n  no; what follows is told to the model: n not today";
/// What is asked after a bare `e`.
pub(crate) const EDIT_PROMPT: &str = "the new arguments as JSON, or Enter to go back:";

/// What a line means.
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
    /// The arguments are still to be typed.
    Edit,
    /// No, and perhaps why.
    Deny(Option<String>),
    /// What do the keys mean?
    Help,
    /// Nothing was typed.
    Empty,
    /// It is none of these.
    Invalid(String),
}

/// What a line means; the end of input is a no.
pub(crate) fn parse_reply(line: Option<&str>) -> PromptReply {
    let Some(line) = line else { return PromptReply::Deny(Some("nobody was there to answer".into())) };
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
        _ => PromptReply::Invalid(format!("`{line}` is none of the answers; ? explains them")),
    }
}

/// What a line means that was asked for as arguments.
pub(crate) fn parse_edited_arguments(text: &str) -> PromptReply {
    if text.trim().is_empty() {
        return PromptReply::Empty;
    }
    match text.parse::<Value>() {
        Ok(arguments) => PromptReply::Edited(arguments),
        Err(wrong) => {
            PromptReply::Invalid(format!("that is no JSON ({wrong}); write it like {{\"folder\": \"/tmp/old\"}}"))
        }
    }
}

/// The lines of the keyboard. One is read when it is wanted and not before: in between the keyboard is somebody else's, such as
/// an editor's. They are read on a thread of their own, which ends with the process: nothing can stop a read that waits for
/// somebody to type, and the runtime would wait for it.
pub(crate) struct StdinLines {
    read_requests: std::sync::mpsc::Sender<()>,
    lines: mpsc::Receiver<String>,
    /// One is being read already, for somebody who did not wait for it.
    read_pending: bool,
}

impl StdinLines {
    /// Those that are typed from now on.
    pub(crate) fn spawn_reader() -> Self {
        let (wants, wanted) = std::sync::mpsc::channel();
        let (lines, typed) = mpsc::channel(1);
        thread::spawn(move || {
            for () in wanted {
                let mut line = String::new();
                match io::stdin().read_line(&mut line) {
                    Ok(0) => return,
                    Ok(_) => {}
                    // A line that is no text is no answer; the question is asked again.
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => line.clear(),
                    Err(_) => return,
                }
                if lines.blocking_send(line.trim_end_matches(['\n', '\r']).to_owned()).is_err() {
                    return;
                }
            }
        });
        Self { read_requests: wants, lines: typed, read_pending: false }
    }

    /// The next line; none at the end of input.
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
        check("?", &PromptReply::Help);
        check("", &PromptReply::Empty);
    }

    #[test]
    fn what_is_no_answer_never_becomes_a_yes() {
        for line in ["yy", "y please", "always", "t a", "e {", "ok"] {
            assert!(matches!(parse_reply(Some(line)), PromptReply::Invalid(_)), "{line}");
        }
        assert!(matches!(parse_reply(None), PromptReply::Deny(Some(_))));
    }
}
