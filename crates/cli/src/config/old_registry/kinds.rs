//! The kinds of tools of old registries, under their newer and older names.

use super::super::{suggest::closest, tree::Node};
use super::{findings::Findings, keys::text};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OldKind {
    Stateless,
    Stateful,
    Rest,
    Mcp,
}

/// The names; upper case is accepted too.
const NAMES: [(&str, OldKind); 6] = [
    ("builtin", OldKind::Stateless),
    ("stateless", OldKind::Stateless),
    ("native", OldKind::Stateful),
    ("stateful", OldKind::Stateful),
    ("rest", OldKind::Rest),
    ("mcp", OldKind::Mcp),
];

impl OldKind {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        let found = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name.trim()));
        found.map(|(_, kind)| *kind)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stateless => "stateless",
            Self::Stateful => "stateful",
            Self::Rest => "rest",
            Self::Mcp => "mcp",
        }
    }
}

/// The kind that a value names; `None` if there is no such kind, which is reported.
pub(super) fn read(node: &Node, findings: &mut Findings) -> Option<OldKind> {
    let name = text(node).unwrap_or_default();
    let kind = OldKind::from_name(name);
    match kind {
        Some(kind) if kind.name() != name => {
            findings.note(&node.key_origin, format!("the type `{name}` is the kind `{}` here", kind.name()));
        }
        Some(_) => {}
        None => report_unknown(name, node, findings),
    }
    kind
}

pub(super) fn report_unknown(name: &str, node: &Node, findings: &mut Findings) {
    let known = NAMES.map(|(known, _)| known);
    let help = match closest(&name.to_lowercase(), known) {
        Some(close) => format!("did you mean {close:?}?"),
        None => format!("use one of: {}", known.join(", ")),
    };
    findings.report(
        &node.origin,
        format!("there is no type of tools named `{}`", toolhub::config::unit::ellipsize(name)),
        help,
    );
}
