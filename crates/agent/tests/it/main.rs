//! What agents and models do, through the doors of the crate.
