//! How the ways out behave, through their public doors.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops where it stands")]

mod command;
mod config;
mod openapi;
mod rest;
