//! Line editor of a conversation: history, arrow keys, wide characters.
//!
//! In: a prompt. Out: the line that the user typed, or `None` at the end of input and on Ctrl-C. The editor runs on a detached OS
//! thread, as `StdinLines` does and for the same reason; the terminal is in raw mode only while a line is edited.

use std::{sync::mpsc::Sender, thread};

use rustyline::{Config, Editor, history::MemHistory};
use tokio::sync::mpsc;

/// Lines in the history.
const MAX_HISTORY: usize = 500;

/// The editor.
pub(crate) struct LineEditor {
    prompts: Sender<String>,
    lines: mpsc::Receiver<Option<String>>,
}

impl LineEditor {
    /// Starts the editor; `None` if the terminal cannot be used.
    pub(crate) fn spawn() -> Option<Self> {
        let config = Config::builder().max_history_size(MAX_HISTORY).ok()?.auto_add_history(true).build();
        let mut editor: Editor<(), MemHistory> = Editor::with_history(config, MemHistory::new()).ok()?;
        let (prompts, requests) = std::sync::mpsc::channel::<String>();
        let (line_tx, lines) = mpsc::channel(1);
        thread::spawn(move || {
            for prompt in requests {
                // An error is Ctrl-C, Ctrl-D on an empty line, or a terminal that is gone.
                let line = editor.readline(&prompt).ok();
                if line_tx.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Some(Self { prompts, lines })
    }

    /// The next line. Must not be dropped before it returns: the editor would still own the terminal.
    pub(crate) async fn read_line(&mut self, prompt: &str) -> Option<String> {
        self.prompts.send(prompt.to_owned()).ok()?;
        self.lines.recv().await.flatten()
    }
}
