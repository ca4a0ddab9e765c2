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
pub(crate) const EDIT: &str = "the new arguments as JSON, or Enter to go back:";

/// What a line means.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Said {
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
    Nothing,
    /// It is none of these.
    Unclear(String),
}

/// What a line means; the end of input is a no.
pub(crate) fn read(line: Option<&str>) -> Said {
    let Some(line) = line else { return Said::Deny(Some("nobody was there to answer".into())) };
    let line = line.trim();
    let (letter, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (letter.to_lowercase().as_str(), rest.trim()) {
        ("y" | "yes", "") => Said::Once,
        ("t", "") => Said::Thread,
        ("a", "") => Said::Always,
        ("e", "") => Said::Edit,
        ("e", arguments) => edited(arguments),
        ("n" | "no", "") => Said::Deny(None),
        ("n" | "no", why) => Said::Deny(Some(why.into())),
        ("?", "") => Said::Help,
        ("", _) => Said::Nothing,
        _ => Said::Unclear(format!("`{line}` is none of the answers; ? explains them")),
    }
}

/// What a line means that was asked for as arguments.
pub(crate) fn edited(text: &str) -> Said {
    if text.trim().is_empty() {
        return Said::Nothing;
    }
    match text.parse::<Value>() {
        Ok(arguments) => Said::Edited(arguments),
        Err(wrong) => Said::Unclear(format!("that is no JSON ({wrong}); write it like {{\"folder\": \"/tmp/old\"}}")),
    }
}

/// The lines of the keyboard. One is read when it is wanted and not before: in between the keyboard is somebody else's, such as
/// an editor's. They are read on a thread of their own, which ends with the process: nothing can stop a read that waits for
/// somebody to type, and the runtime would wait for it.
pub(crate) struct Lines {
    wants: std::sync::mpsc::Sender<()>,
    typed: mpsc::Receiver<String>,
    /// One is being read already, for somebody who did not wait for it.
    wanted: bool,
}

impl Lines {
    /// Those that are typed from now on.
    pub(crate) fn typed() -> Self {
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
        Self { wants, typed, wanted: false }
    }

    /// The next line; none at the end of input.
    pub(crate) async fn next(&mut self) -> Option<String> {
        if !self.wanted {
            self.wants.send(()).ok()?;
            self.wanted = true;
        }
        let line = self.typed.recv().await;
        self.wanted = false;
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(line: &str, expected: &Said) {
        assert_eq!(read(Some(line)), *expected, "{line}");
    }

    #[test]
    fn a_letter_is_an_answer() {
        check("y", &Said::Once);
        check(" Y ", &Said::Once);
        check("t", &Said::Thread);
        check("a", &Said::Always);
        check("n", &Said::Deny(None));
        check("n  not today", &Said::Deny(Some("not today".into())));
        check("e", &Said::Edit);
        check("e {\"folder\": \"x\"}", &Said::Edited(json!({"folder": "x"})));
        check("?", &Said::Help);
        check("", &Said::Nothing);
    }

    #[test]
    fn what_is_no_answer_never_becomes_a_yes() {
        for line in ["yy", "y please", "always", "t a", "e {", "ok"] {
            assert!(matches!(read(Some(line)), Said::Unclear(_)), "{line}");
        }
        assert!(matches!(read(None), Said::Deny(Some(_))));
    }
}
