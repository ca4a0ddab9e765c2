//! What the owner of a server says about it.
//!
//! In: values from a config or from code. Out: the same values, for the rooms that heed them.

use std::time::Duration;

use crate::scope::Scope;

/// Everything that can be said about a server.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// Where it listens; loopback unless said otherwise.
    pub host: String,
    /// Its port; 0 lets the system choose.
    pub port: u16,
    /// The address people reach it by, for links in answers; made of host and port where absent.
    pub public_url: Option<String>,
    /// The hosts it answers for, without port. Requests for others are refused, so that no web page can reach it by a name
    /// of its own.
    pub allowed_hosts: Vec<String>,
    /// Who may come in.
    pub auth: Auth,
    /// How much a client may ask of it.
    pub limits: Limits,
    /// How long it goes on as before after it was asked to stop, while `/readyz` already says no: time for whoever sends it
    /// requests to notice. None by default.
    pub shutdown_notice: Duration,
    /// How long running requests and calls may go on after that.
    pub drain_timeout: Duration,
    /// Whether `/metrics` is served.
    pub metrics: bool,
    /// How long it is kept who did what, and who was not let.
    pub audit_retention: Duration,
    /// What was built, for whoever wonders which program answers.
    pub build: Build,
}

/// What was built, as the program around the server knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    /// The version of the program.
    pub version: String,
    /// The revision of its sources.
    pub revision: String,
    /// The version of the compiler.
    pub rustc: String,
}

/// Who may come in.
#[derive(Debug, Clone, PartialEq)]
pub enum Auth {
    /// Whoever reaches the loopback address of this machine.
    Local,
    /// Whoever has a key: one of these, or one made over the API.
    Keys(Vec<KeySetting>),
}

/// A key that stands in the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySetting {
    /// Its name; limits, rules and records call its holder so.
    pub name: String,
    /// Whose threads it sees.
    pub tenant: String,
    /// `sha256:` and the digest of the key in hexadecimal. The key itself is nowhere.
    pub hash: String,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// When it ends, in milliseconds since 1970.
    pub expires: Option<i64>,
}

/// How much a client may ask of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a body.
    pub body: usize,
    /// Bytes of all headers.
    pub headers: usize,
    /// Levels of JSON.
    pub json_depth: usize,
    /// Time until the headers are here.
    pub header_timeout: Duration,
    /// Time until the body is here; and how long a client may leave an answer unread.
    pub body_timeout: Duration,
    /// How long a connection is kept on which nothing is asked.
    pub idle_timeout: Duration,
    /// Connections at once. Beyond that, those on which nothing is asked are closed first.
    pub connections: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".into(),
            port: 8665,
            public_url: None,
            allowed_hosts: ["127.0.0.1", "localhost", "[::1]"].map(String::from).into(),
            auth: Auth::Local,
            limits: Limits::default(),
            shutdown_notice: Duration::ZERO,
            drain_timeout: Duration::from_secs(30),
            metrics: true,
            audit_retention: Duration::from_secs(90 * 86_400),
            build: Build::default(),
        }
    }
}

impl Default for Build {
    fn default() -> Self {
        let unknown = || "unknown".to_owned();
        Self { version: env!("CARGO_PKG_VERSION").into(), revision: unknown(), rustc: unknown() }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 2 << 20,
            headers: 16 << 10,
            json_depth: 64,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            connections: 4096,
        }
    }
}
