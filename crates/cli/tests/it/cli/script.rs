//! A session as it is written down.

/// The lines at the top, and what is typed and shown.
pub(crate) struct Script {
    header_lines: Vec<String>,
    pub(crate) steps: Vec<Step>,
}

/// One command and what it shows.
pub(crate) struct Step {
    pub(crate) command: String,
    pub(crate) output: String,
}

impl Script {
    pub(crate) fn parse(text: &str) -> Self {
        let (mut head, mut steps) = (Vec::new(), Vec::<Step>::new());
        for line in text.lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(typed), _) => steps.push(Step { command: typed.into(), output: String::new() }),
                (None, Some(step)) => step.output += &format!("{line}\n"),
                (None, None) => head.push(line.to_owned()),
            }
        }
        for step in &mut steps {
            step.output = format!("{}\n", step.output.trim_end()).trim_start_matches('\n').to_owned();
        }
        assert!(!steps.is_empty(), "nothing is typed in this session");
        Self { header_lines: head, steps }
    }

    /// As it is written down.
    pub(crate) fn render(&self) -> String {
        let head = self.header_lines.join("\n").trim_end().to_owned();
        let step = |step: &Step| format!("\n\n$ {}\n{}", step.command, step.output.trim_end());
        head + &self.steps.iter().map(step).collect::<String>() + "\n"
    }

    fn header_values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.header_lines.iter().filter_map(move |line| line.strip_prefix("# ")?.strip_prefix(name)?.strip_prefix(": "))
    }

    /// Where the commands go: `here` or `server`; `empty` for a folder without a config.
    pub(crate) fn setup(&self) -> &str {
        self.header_values("way").next().unwrap_or("here")
    }

    pub(crate) fn columns(&self) -> usize {
        self.header_values("columns").next().map_or(100, |columns| columns.parse().expect("columns are a number"))
    }

    /// Whether every line of data must fit.
    pub(crate) fn checks_width(&self) -> bool {
        self.header_values("columns").next().is_some()
    }

    pub(crate) fn env(&self) -> Vec<(&str, &str)> {
        self.header_values("env").filter_map(|said| said.split_once('=')).collect()
    }
}

/// What a line means: what is piped in, and the words after `toolhub`.
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

/// Words as a shell splits them: by space, except inside quotes.
fn split_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in line.chars() {
        match (letter, quote) {
            (letter, Some(open)) if letter == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (' ', None) => words.extend(word.take()),
            (letter, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}
