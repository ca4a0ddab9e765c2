//! Tool definitions: name, kind, description, schemas, annotations and dependencies.
//!
//! Plain data. Executors run tools; the registry finds them.

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
