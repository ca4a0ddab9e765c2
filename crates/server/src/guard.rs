//! Who may come in.
//!
//! `front` looks at every request before anything else does, whatever its address: is it meant for this server, and does
//! no foreign web page send it? `gate` stands before one route, made from the access the route names: it asks for a key,
//! looks at its scopes, and notes what came of it. Nothing here looks at the text of a path to decide.

mod exposed;
mod front;
mod gate;
mod hosts;

pub(crate) use exposed::{Exposed, may_listen};
pub(crate) use front::{Arrived, Front, REQUEST_ID};
pub(crate) use gate::{Post, outside};
