//! What a tool is, before anybody calls it: its name, kind, description, schemas, hints and dependencies.
//!
//! Plain data. How a tool is run is the executor's business, how it is found the registry's.

mod annotations;
mod definition;
mod dependencies;
mod kind;
mod name;

pub use annotations::Annotations;
pub use definition::{Definition, Metadata, Origin};
pub use dependencies::{DependencyGroup, DependsOn};
pub use kind::Kind;
pub use name::{NameError, ToolName};
