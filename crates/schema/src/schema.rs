//! Argument schemas: inferred from a type, merged with a schema given by hand, validated on every call.
//!
//! `infer` creates a schema, `merge` refines it, `limits` refuses one that could exhaust resources, and `Schema::compile` compiles it
//! once. Validation errors are reported as `Problem`s that a model can act on.
//! Knows no tool and no call; the registry compiles schemas and the pipeline validates arguments.

mod check;
mod cost;
mod decode;
mod description;
mod error;
mod explain;
mod infer;
mod limits;
mod merge;
mod patterns;
mod ref_blowup;
mod refs;
mod subsumes;
mod union;

pub use check::Schema;
pub use decode::explain_decode;
pub use error::SchemaError;
pub use infer::infer;
pub use limits::is_depth_within;
pub use merge::merge;
pub use patterns::{is_supported_pattern, without_unsupported_patterns};
pub use refs::{Subschema, subschemas};
pub use toolhub_types::problem::{Problem, problems_text};
