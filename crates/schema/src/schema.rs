//! What arguments a tool takes: inferred from a type, laid over by hand, checked on every call.
//!
//! A schema is made by `infer`, refined by `merge`, refused by `limits` when it could hurt us, and compiled
//! once into a `Schema`. What is wrong with arguments leaves as `Problem`s a model can act on.
//! Knows no tool and no call; the registry compiles and the gates of a call check.

mod check;
mod cost;
mod decode;
mod description;
mod error;
mod explain;
mod infer;
mod limits;
mod merge;
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
pub use toolhub_types::problem::{Problem, problems_text};
