//! What must have succeeded in a thread before a tool may be used there.
//!
//! Declared here, checked for unknown names and circles by the registry, enforced on the way of a call.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ToolName;

/// The dependencies of a tool: every group must be satisfied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DependsOn(pub Vec<DependencyGroup>);

/// Tools that must have succeeded, and how they are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "DependencyGroup")]
pub enum DependencyGroup {
    /// Each of them.
    All {
        /// The tools.
        tools: Vec<ToolName>,
        /// How old a success may be; any age where absent.
        #[serde(rename = "withinMs", with = "crate::millis::option", skip_serializing_if = "Option::is_none", default)]
        #[schemars(with = "Option<u64>")]
        within: Option<Duration>,
    },
    /// At least one of them.
    Any {
        /// The tools.
        tools: Vec<ToolName>,
        /// How old a success may be; any age where absent.
        #[serde(rename = "withinMs", with = "crate::millis::option", skip_serializing_if = "Option::is_none", default)]
        #[schemars(with = "Option<u64>")]
        within: Option<Duration>,
    },
    /// Each of them, their first successes in this order.
    Sequence {
        /// The tools.
        tools: Vec<ToolName>,
        /// How old a success may be; any age where absent.
        #[serde(rename = "withinMs", with = "crate::millis::option", skip_serializing_if = "Option::is_none", default)]
        #[schemars(with = "Option<u64>")]
        within: Option<Duration>,
    },
}

impl DependsOn {
    /// Whether the tool can be used from the first moment on.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every tool named, in order of mention.
    pub fn names(&self) -> impl Iterator<Item = &ToolName> {
        self.0.iter().flat_map(DependencyGroup::tools)
    }
}

impl DependencyGroup {
    /// How old a success may be; any age where absent.
    #[must_use]
    pub fn within(&self) -> Option<Duration> {
        match self {
            Self::All { within, .. } | Self::Any { within, .. } | Self::Sequence { within, .. } => *within,
        }
    }

    /// The same group, with successes no older than this.
    #[must_use]
    pub fn with_max_age(mut self, limit: Duration) -> Self {
        match &mut self {
            Self::All { within, .. } | Self::Any { within, .. } | Self::Sequence { within, .. } => {
                *within = Some(limit);
            }
        }
        self
    }

    /// The tools of this group.
    #[must_use]
    pub fn tools(&self) -> &[ToolName] {
        match self {
            Self::All { tools, .. } | Self::Any { tools, .. } | Self::Sequence { tools, .. } => tools,
        }
    }
}
