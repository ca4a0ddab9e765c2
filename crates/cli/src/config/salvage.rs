//! The part of a config that can be looked at further although another has mistakes.
//!
//! In: a config, and what is wrong with single values of it. Out: the same without the sections those stand in, so that what is wrong
//! with the rest is told at once. Others may refer to a section that was taken out: something plain stands in its place. Nothing
//! where what was taken out could be what the rest needs.

use std::collections::BTreeMap;

use super::{
    problem::Problem,
    tree::{Node, Value},
};

/// Sections whose members are looked at one by one.
const NAMED_SECTIONS: [&str; 3] = ["tools", "agents", "toolsets"];

/// What is left; nothing where it cannot be told apart.
pub(super) fn retain_valid(tree: &Node, problems: &[Problem]) -> Option<Node> {
    let mut left = tree.clone();
    let Value::Table(sections) = &mut left.value else { return None };
    for problem in problems {
        let mut keys = problem.key.split(['.', '[']);
        let (section, name) = (keys.next().unwrap_or_default(), keys.next());
        match (section, name) {
            // No key is to blame; or tools that others wait for come from there, or what holds for tools that say nothing themselves.
            ("" | "imports" | "defaults", _) => return None,
            // Who may come in, and from where, is one question.
            ("server" | "auth", _) => {
                sections.remove("server");
                sections.remove("auth");
            }
            (section, Some(name)) if NAMED_SECTIONS.contains(&section) => {
                match sections.get_mut(section).map(|it| &mut it.value) {
                    Some(Value::Table(members)) => {
                        let member = members.get_mut(name)?;
                        member.value = placeholder(section, member);
                    }
                    _ => return None,
                }
            }
            ("llm", _) => {
                let model = sections.get_mut(section)?;
                model.value = placeholder(section, model);
            }
            (section, _) if NAMED_SECTIONS.contains(&section) => return None,
            (section, _) => drop(sections.remove(section)),
        }
    }
    Some(left)
}

/// Something of the sort that has no mistake.
fn placeholder(section: &str, of: &Node) -> Value {
    let text = |key: &str, text: &str| (key.to_owned(), Node::new(Value::Text(text.into()), &of.origin));
    let said = match section {
        "tools" => vec![text("builtin", "clock")],
        "llm" => vec![text("provider", "scripted")],
        "toolsets" => vec![("tools".to_owned(), Node::new(Value::List(Vec::new()), &of.origin))],
        _ => Vec::new(),
    };
    Value::Table(BTreeMap::from_iter(said))
}
