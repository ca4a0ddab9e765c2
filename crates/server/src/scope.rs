//! Scopes of keys, access of routes, and the principal of a request.
//!
//! In: the names of a key's scopes. Out: small values that routes declare and `auth` compares.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use toolhub_core::ids::{Caller, Tenant};

/// A permission of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Scope {
    /// Read tools, their statuses, calls and events.
    #[serde(rename = "tools:read")]
    ToolsRead,
    /// Call tools, and cancel calls.
    #[serde(rename = "tools:call")]
    ToolsCall,
    /// Operate tools: set, reset, enable and disable their shared status, and restart MCP servers.
    #[serde(rename = "tools:write")]
    ToolsWrite,
    /// Decide approvals, and revoke grants.
    #[serde(rename = "approvals:write")]
    ApprovalsWrite,
    /// Read the state of tools.
    #[serde(rename = "state:read")]
    StateRead,
    /// Write the state of tools.
    #[serde(rename = "state:write")]
    StateWrite,
    /// Everything, for all tenants: tools, MCP servers, keys, config, backups.
    #[serde(rename = "admin")]
    Admin,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 7] = [
        Self::ToolsRead,
        Self::ToolsCall,
        Self::ToolsWrite,
        Self::ApprovalsWrite,
        Self::StateRead,
        Self::StateWrite,
        Self::Admin,
    ];

    /// Its name in keys and configs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ToolsRead => "tools:read",
            Self::ToolsCall => "tools:call",
            Self::ToolsWrite => "tools:write",
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

/// A text that names no scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown scope `{0}`; known are tools:read, tools:call, tools:write, approvals:write, state:read, state:write, admin"
)]
pub struct UnknownScope(String);

impl FromStr for Scope {
    type Err = UnknownScope;

    fn from_str(name: &str) -> Result<Self, UnknownScope> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == name).ok_or_else(|| UnknownScope(name.into()))
    }
}

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Every client, also without a key.
    Open,
    /// Clients with a valid key; the handler decides what each may do.
    Authenticated,
    /// Clients with this scope.
    Needs(Scope),
}

/// A set of scopes, as a bit set.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Scopes(u8);

impl Scopes {
    /// Whether the set contains this scope.
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

/// The authenticated caller of a request and its permissions. Created by the route's guard, once per request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Principal {
    /// The tenant whose threads, state and approvals the request may access.
    pub(crate) tenant: Tenant,
    /// The name of the key; limits, rules and approvals refer to it.
    pub(crate) caller: Caller,
    /// Its permissions.
    pub(crate) scopes: Scopes,
    /// The login through which the key is used.
    pub(crate) login: Option<LoginId>,
}

/// The id of a login of the dashboard: a hash of its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct LoginId(pub(crate) SmolStr);

impl Principal {
    /// The local user without keys: full access, as the default tenant.
    pub(crate) fn local() -> Self {
        Self {
            tenant: Tenant::default(),
            caller: Caller::default(),
            scopes: Scopes::from_iter([Scope::Admin]),
            login: None,
        }
    }

    /// Whether both may do the same, as the same caller.
    pub(crate) fn has_same_rights(&self, other: &Self) -> bool {
        (&self.tenant, &self.caller, self.scopes) == (&other.tenant, &other.caller, other.scopes)
    }

    /// Whether it has this scope. `admin` includes every scope.
    pub(crate) fn has_scope(&self, scope: Scope) -> bool {
        self.scopes.has(scope) || self.scopes.has(Scope::Admin)
    }
}
