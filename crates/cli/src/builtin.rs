//! Tools bundled with the binary for demos and first steps: `builtin = "calculator"` in a config.
//!
//! In: the name the tool is to have. Out: a [`ToolBuilder`]. The library bundles no tools. `builtin/tools.rs` implements them.

mod calculator;
mod tools;

use toolhub::ToolBuilder;

pub(crate) use tools::Notes;

/// A bundled tool.
#[derive(Debug)]
pub(crate) struct Builtin {
    /// Its name in a config.
    pub(crate) name: &'static str,
    make: fn(&str) -> ToolBuilder,
}

/// All of them, sorted by name.
pub(crate) const ALL: [Builtin; 7] = [
    Builtin { name: "calculator", make: tools::calculator },
    Builtin { name: "clock", make: tools::clock },
    Builtin { name: "counter", make: tools::counter },
    Builtin { name: "dangerous", make: tools::dangerous },
    Builtin { name: "flaky", make: tools::flaky },
    Builtin { name: "notes", make: tools::notes },
    Builtin { name: "report", make: tools::report },
];

impl Builtin {
    /// Builds a tool of this name. Each tool built has its own state.
    pub(crate) fn tool(&self, name: &str) -> ToolBuilder {
        (self.make)(name)
    }
}

#[cfg(test)]
mod tests;
