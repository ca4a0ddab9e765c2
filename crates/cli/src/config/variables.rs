//! Expands environment variables in the strings of a file: `${NAME}` and `${NAME:-default}`.
//!
//! In: a parsed tree. Out: the same tree with variables expanded, and one problem for each that is not set. `$${` is a literal
//! `${`. Values of variables are not expanded again.

use super::{
    environment::{Environment, is_variable_name},
    problem::Problem,
    suggest::closest,
    tree::{Node, Path, Value},
};

/// Expands every variable in a tree.
pub(crate) fn expand(node: &mut Node, path: &Path, environment: &Environment, problems: &mut Vec<Problem>) {
    match &mut node.value {
        Value::Text(text) if text.contains("${") => {
            let expansion = expand_text(text, environment);
            node.variables = expansion.variables;
            node.unresolved = !expansion.problems.is_empty();
            let expansion_problems = expansion
                .problems
                .into_iter()
                .map(|(message, help)| Problem::at(&node.origin, path, format!("{message}, in `{path}`")).help(help));
            problems.extend(expansion_problems);
            *text = expansion.text;
        }
        Value::List(list) => {
            for (at, item) in list.iter_mut().enumerate() {
                expand(item, &path.index(at), environment, problems);
            }
        }
        Value::Table(table) => {
            for (key, inner) in table {
                expand(inner, &path.key(key), environment, problems);
            }
        }
        _ => {}
    }
}

#[derive(Default)]
struct VariableExpansion {
    text: String,
    variables: Vec<String>,
    /// Messages, each with its help.
    problems: Vec<(String, String)>,
}

fn expand_text(text: &str, environment: &Environment) -> VariableExpansion {
    let mut expansion = VariableExpansion::default();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            expansion.text += before;
            expansion.text += "${";
            rest = &from[2..];
            continue;
        }
        expansion.text += before;
        let Some(end) = from.find('}') else {
            let help = "write ${NAME}, or $${ for a literal ${";
            expansion.problems.push(("a variable has no closing }".into(), help.into()));
            rest = "";
            break;
        };
        expansion.expand_variable(&from[2..end], environment);
        rest = &from[end + 1..];
    }
    expansion.text += rest;
    expansion
}

impl VariableExpansion {
    fn expand_variable(&mut self, inside: &str, environment: &Environment) {
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        if !is_variable_name(name) {
            let help = "write ${NAME} or ${NAME:-default}: letters, digits and _; $${ for a literal ${";
            self.problems.push((format!("`${{{inside}}}` is not a valid variable reference"), help.into()));
            return;
        }
        self.variables.push(name.into());
        // As in a shell, an empty variable yields to the default.
        match (environment.get(name), default) {
            (Some(""), Some(default)) | (None, Some(default)) => self.text += default,
            (Some(value), _) => self.text += value,
            (None, None) if environment.assumed_value().is_some() => {
                self.text += environment.assumed_value().unwrap_or_default();
            }
            (None, None) if environment.is_of_running_server() => {
                self.problems.push((format!("the variable {name} is not set"), environment.unset_hint(name)));
            }
            (None, None) => {
                let help = match closest(name, environment.names()) {
                    Some(other) if other.len() > 2 => {
                        format!("did you mean ${{{other}}}, which is set? Otherwise set it,")
                    }
                    _ => "set it,".into(),
                };
                let help = format!("{help} or write ${{{name}:-default}}");
                self.problems.push((format!("the variable {name} is not set"), help));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let set = [("CITY", "Oslo"), ("EMPTY", ""), ("TRICK", "${CITY}")];
        let environment = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let expansion = expand_text(text, &environment);
        let got = expansion.problems.first().map_or(expansion.text, |(message, _)| format!("! {message}"));
        assert_eq!(got, expected, "{text}");
    }

    #[test]
    fn variables_are_replaced_once_and_may_have_a_default() {
        check("${CITY}", "Oslo");
        check("in ${CITY}, ${CITY}.", "in Oslo, Oslo.");
        check("${NONE:-Rome}", "Rome");
        check("${EMPTY:-Rome}", "Rome");
        check("${EMPTY}", "");
        check("${NONE:-}", "");
        check("${CITY:-Rome}", "Oslo");
        check("${TRICK}", "${CITY}");
        check("$CITY and $ and }", "$CITY and $ and }");
        check("$${CITY} costs $5", "${CITY} costs $5");
        check("ü${CITY}ü", "üOsloü");
    }

    #[test]
    fn what_cannot_be_replaced_is_named() {
        check("${NONE}", "! the variable NONE is not set");
        check("${CITY", "! a variable has no closing }");
        check("${}", "! `${}` is not a valid variable reference");
        check("${A B}", "! `${A B}` is not a valid variable reference");
    }
}
