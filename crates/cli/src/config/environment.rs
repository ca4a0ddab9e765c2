//! Environment variables, of the process and of the file that `--env-file` names.
//!
//! In: the environment of the process, and lines `NAME=value`. Out: variables by name, each with its origin. The process takes
//! precedence over the file. The environment of the process is never changed.

use std::{collections::BTreeMap, fmt, ops::Range, sync::Arc};

use super::{
    problem::Problem,
    tree::{KeySegment, Origin, Path, Source},
};

/// Prefix of variables that set a key of the config.
pub(crate) const KEY_PREFIX: &str = "TOOLHUB__";

/// Variables by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    variables: BTreeMap<String, Variable>,
    /// Whether a variable that is not set has some value anyway, for a config that is only looked at.
    assume_set: bool,
    /// Whether it belongs to a running server, which reloads its config.
    in_server: bool,
}

#[derive(Clone)]
struct Variable {
    value: String,
    file: Option<(Arc<Source>, Range<usize>)>,
}

impl Environment {
    /// The environment of the process. Variables that are not UTF-8 are skipped.
    pub(crate) fn from_process() -> Self {
        let texts =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        texts.collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(|variable| variable.value.as_str())
    }

    /// A value for a variable that is not set, if one is to be assumed.
    pub(crate) fn assumed_value(&self) -> Option<&'static str> {
        self.assume_set.then_some("assumed")
    }

    /// The same environment, in which every variable has some value.
    pub(crate) fn assuming_all_set(self) -> Self {
        Self { assume_set: true, ..self }
    }

    /// The same environment, as that of a running server.
    pub(crate) fn of_running_server(self) -> Self {
        Self { in_server: true, ..self }
    }

    /// What to do about a variable that is not set.
    pub(crate) fn unset_hint(&self, variable: &str) -> String {
        if self.in_server {
            "the server process does not have it: restart it, or start it with --env-file, which is read again at each reload".into()
        } else {
            format!("set it before starting toolhub, or in the file of --env-file: {variable}=…")
        }
    }

    /// Whether it belongs to a running server.
    pub(crate) fn is_of_running_server(&self) -> bool {
        self.in_server
    }

    /// Where a variable was set.
    pub(crate) fn origin(&self, name: &str) -> Origin {
        let file = self.variables.get(name).and_then(|variable| variable.file.clone());
        Origin::Env { name: name.into(), file }
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.variables.keys().map(String::as_str)
    }

    /// Adds the variables of a file that the process does not set.
    pub(crate) fn add_file(&mut self, source: &Arc<Source>) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut at = 0;
        for line in source.text.split_inclusive('\n') {
            let span = at..at + line.trim_end().len();
            at += line.len();
            match parse_line(line) {
                EnvLine::Blank => {}
                EnvLine::Variable(name, value) => {
                    let variable = Variable { value, file: Some((source.clone(), span)) };
                    self.variables.entry(name).or_insert(variable);
                }
                EnvLine::Invalid => {
                    let problem = Problem::new(
                        Origin::File { source: source.clone(), span },
                        "",
                        "this is not a variable".into(),
                    );
                    problems.push(problem.help("write NAME=value, one per line; lines that start with # are skipped"));
                }
            }
        }
        problems
    }
}

impl fmt::Debug for Variable {
    /// The value may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("••••")
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Self {
        let all = variables.into_iter().map(|(name, value)| (name, Variable { value, file: None }));
        Self { variables: all.collect(), assume_set: false, in_server: false }
    }
}

enum EnvLine {
    Blank,
    Variable(String, String),
    Invalid,
}

fn parse_line(line: &str) -> EnvLine {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return EnvLine::Blank;
    }
    let Some((name, value)) = line.strip_prefix("export ").unwrap_or(line).split_once('=') else {
        return EnvLine::Invalid;
    };
    let (name, value) = (name.trim(), value.trim());
    if !is_variable_name(name) {
        return EnvLine::Invalid;
    }
    let quoted = ['"', '\''].iter().find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
    EnvLine::Variable(name.into(), quoted.unwrap_or(value).into())
}

/// The variable that sets a key.
pub(crate) fn variable_for_key(path: &Path) -> String {
    let segments = path.0.iter().map(|segment| match segment {
        KeySegment::Key(key) => key.to_uppercase(),
        KeySegment::Index(index) => index.to_string(),
    });
    format!("{KEY_PREFIX}{}", segments.collect::<Vec<_>>().join("__"))
}

/// Whether a text is a valid variable name.
pub(crate) fn is_variable_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}
