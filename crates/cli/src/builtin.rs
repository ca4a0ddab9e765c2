//! The tools that the binary carries, for demos and first steps: `builtin = "calculator"` in a config.
//!
//! In: the name of one of them, and the name it is to have. Out: a tool in the making, or the names that come close.
//! The library carries none. What each does stands in `builtin/pack.rs`.

mod calculator;
mod pack;

use toolhub::ToolBuilder;

pub(crate) use pack::Notes;

/// One of the tools.
#[derive(Debug)]
pub(crate) struct Builtin {
    /// What it is called in a config.
    pub(crate) name: &'static str,
    stateful: bool,
    read_only: bool,
    make: fn(&str) -> ToolBuilder,
}

/// All of them, by name.
pub(crate) const ALL: [Builtin; 7] = [
    Builtin { name: "calculator", stateful: false, read_only: true, make: pack::calculator },
    Builtin { name: "clock", stateful: false, read_only: true, make: pack::clock },
    Builtin { name: "counter", stateful: true, read_only: false, make: pack::counter },
    Builtin { name: "dangerous", stateful: false, read_only: false, make: pack::dangerous },
    Builtin { name: "flaky", stateful: false, read_only: true, make: pack::flaky },
    Builtin { name: "notes", stateful: true, read_only: false, make: pack::notes },
    Builtin { name: "report", stateful: false, read_only: true, make: pack::report },
];

/// The one of this name.
pub(crate) fn find(name: &str) -> Option<&'static Builtin> {
    ALL.iter().find(|builtin| builtin.name == name)
}

impl Builtin {
    /// Whether it remembers something.
    pub(crate) fn is_stateful(&self) -> bool {
        self.stateful
    }

    /// Whether it changes nothing.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// A tool of this name that does what the builtin does. Each has a life of its own.
    pub(crate) fn tool(&self, name: &str) -> ToolBuilder {
        (self.make)(name)
    }
}

#[cfg(test)]
mod tests;
