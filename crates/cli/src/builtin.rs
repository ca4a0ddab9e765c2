//! Tools bundled with the binary for demos and first steps: `builtin = "calculator"` in a config.
//!
//! In: the name the tool is to have. Out: a [`ToolBuilder`]. The library bundles no tools. `builtin/pack.rs` implements them.

mod calculator;
mod pack;

use toolhub::ToolBuilder;

pub(crate) use pack::Notes;

/// A bundled tool.
#[derive(Debug)]
pub(crate) struct Builtin {
    /// Its name in a config.
    pub(crate) name: &'static str,
    make: fn(&str) -> ToolBuilder,
}

/// All of them, sorted by name.
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
    /// Builds a tool of this name. Each tool built has its own state.
    pub(crate) fn tool(&self, name: &str) -> ToolBuilder {
        (self.make)(name)
    }
}

#[cfg(test)]
mod tests;
