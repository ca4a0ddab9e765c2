//! What a key may do, and who is asking.
//!
//! In: the words of a key's scopes. Out: small values that routes name and the guard compares.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhub_core::ids::{Caller, Tenant};

/// One thing a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Scope {
    /// Look at tools, their statuses, calls and events.
    #[serde(rename = "tools:read")]
    ToolsRead,
    /// Call tools, and stop calls.
    #[serde(rename = "tools:call")]
    ToolsCall,
    /// Answer questions about calls, and take grants back.
    #[serde(rename = "approvals:write")]
    ApprovalsWrite,
    /// Look at what tools remember.
    #[serde(rename = "state:read")]
    StateRead,
    /// Change what tools remember.
    #[serde(rename = "state:write")]
    StateWrite,
    /// Everything, for everybody: statuses shared by all, keys, config, backups.
    #[serde(rename = "admin")]
    Admin,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 6] =
        [Self::ToolsRead, Self::ToolsCall, Self::ApprovalsWrite, Self::StateRead, Self::StateWrite, Self::Admin];

    /// The word in keys and configs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ToolsRead => "tools:read",
            Self::ToolsCall => "tools:call",
            Self::ApprovalsWrite => "approvals:write",
            Self::StateRead => "state:read",
            Self::StateWrite => "state:write",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A word that is no scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no scope; there are tools:read, tools:call, approvals:write, state:read, state:write, admin")]
pub struct UnknownScope(String);

impl FromStr for Scope {
    type Err = UnknownScope;

    fn from_str(word: &str) -> Result<Self, UnknownScope> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == word).ok_or_else(|| UnknownScope(word.into()))
    }
}

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everybody who reaches the server.
    Open,
    /// Whoever has this scope.
    Needs(Scope),
}

/// Several scopes, small enough to be copied.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Scopes(u8);

impl Scopes {
    /// Whether this one is among them.
    pub(crate) fn has(self, scope: Scope) -> bool {
        self.0 & (1 << scope as u8) != 0
    }

    /// All of them, in the order of [`Scope::ALL`].
    pub(crate) fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.has(*scope))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |all, scope| all | 1 << scope as u8))
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Scope::as_str)).finish()
    }
}

/// Who asks, and what they may do. Made by the guard, once per request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Principal {
    /// Whose threads, state and approvals the request may see.
    pub(crate) tenant: Tenant,
    /// The name of the key; limits, rules and approvals look at it.
    pub(crate) caller: Caller,
    /// What it may do.
    pub(crate) scopes: Scopes,
}

impl Principal {
    /// Whoever sits at this machine: everything, as the default tenant.
    pub(crate) fn local() -> Self {
        Self { tenant: Tenant::default(), caller: Caller::default(), scopes: Scopes::from_iter([Scope::Admin]) }
    }

    /// Whether it may do this. `admin` may do everything.
    pub(crate) fn has_scope(&self, scope: Scope) -> bool {
        self.scopes.has(scope) || self.scopes.has(Scope::Admin)
    }
}
