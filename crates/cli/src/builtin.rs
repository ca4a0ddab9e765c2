//! The tools that the binary carries, for demos and first steps: `builtin = "calculator"` in a config.
//!
//! In: the name that one of them is to have. Out: a tool in the making.
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
    make: fn(&str) -> ToolBuilder,
}

/// All of them, by name.
pub(crate) const ALL: [Builtin; 7] = [
    Builtin { name: "calculator", make: pack::calculator },
    Builtin { name: "clock", make: pack::clock },
    Builtin { name: "counter", make: pack::counter },
    Builtin { name: "dangerous", make: pack::dangerous },
    Builtin { name: "flaky", make: pack::flaky },
    Builtin { name: "notes", make: pack::notes },
    Builtin { name: "report", make: pack::report },
];

impl Builtin {
    /// A tool of this name that does what the builtin does. Each has a life of its own.
    pub(crate) fn tool(&self, name: &str) -> ToolBuilder {
        (self.make)(name)
    }
}

#[cfg(test)]
mod tests;
