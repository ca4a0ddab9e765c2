//! Parses and renders a session file.

/// The header lines, and the commands with their output.
pub(crate) struct Script {
    header_lines: Vec<String>,
    pub(crate) steps: Vec<Step>,
}

/// A command and its output.
pub(crate) struct Step {
    pub(crate) command: String,
    pub(crate) output: String,
}

impl Script {
    pub(crate) fn parse(text: &str) -> Self {
        let (mut head, mut steps) = (Vec::new(), Vec::<Step>::new());
        for line in text.lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(Step { command: command.into(), output: String::new() }),
                (None, Some(step)) => step.output += &format!("{line}\n"),
                (None, None) => head.push(line.to_owned()),
            }
        }
        for step in &mut steps {
            step.output = format!("{}\n", step.output.trim_end()).trim_start_matches('\n').to_owned();
        }
        assert!(!steps.is_empty(), "the session has no commands");
        Self { header_lines: head, steps }
    }

    /// Renders the file.
    pub(crate) fn render(&self) -> String {
        let head = self.header_lines.join("\n").trim_end().to_owned();
        let step = |step: &Step| format!("\n\n$ {}\n{}", step.command, step.output.trim_end());
        head + &self.steps.iter().map(step).collect::<String>() + "\n"
    }

    fn header_values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.header_lines.iter().filter_map(move |line| line.strip_prefix("# ")?.strip_prefix(name)?.strip_prefix(": "))
    }

    /// The setup of the session; see `cli.rs`.
    pub(crate) fn setup(&self) -> &str {
        self.header_values("setup").next().unwrap_or("in_process")
    }

    pub(crate) fn columns(&self) -> usize {
        self.header_values("columns").next().map_or(100, |columns| columns.parse().expect("columns are a number"))
    }

    /// Whether every line of stdout must fit the columns.
    pub(crate) fn checks_width(&self) -> bool {
        self.header_values("columns").next().is_some()
    }

    pub(crate) fn env(&self) -> Vec<(&str, &str)> {
        self.header_values("env").filter_map(|assignment| assignment.split_once('=')).collect()
    }
}

/// Splits a command line: what is piped to stdin, and the arguments after `toolhub`.
pub(crate) fn parse_command(line: &str) -> (String, Vec<String>) {
    let (stdin, line) = match line.strip_prefix("echo ").and_then(|rest| rest.split_once(" | ")) {
        Some((text, line)) => (split_words(text).join(" ") + "\n", line),
        None => (String::new(), line),
    };
    let mut words = split_words(line);
    assert_eq!(words.first().map(String::as_str), Some("toolhub"), "only toolhub is run: {line}");
    words.remove(0);
    (stdin, words)
}

/// Splits words as a shell does: by space, except inside quotes.
fn split_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (' ', None) => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}
