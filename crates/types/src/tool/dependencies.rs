//! Dependencies of a tool: the tools that must have succeeded in a thread before it may be used there.
//!
//! Declarations only. The registry checks them for unknown names and cycles; the pipeline enforces them.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ToolName;

/// The dependencies of a tool: every group must be satisfied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DependsOn(pub Vec<DependencyGroup>);

/// Tools that must have succeeded, and how many of them in which order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "DependencyGroup")]
pub enum DependencyGroup {
    /// All of them.
    All {
        /// The tools.
        tools: Vec<ToolName>,
        /// Maximum age of a success. Default: any age.
        #[serde(rename = "withinMs", with = "crate::millis::option", skip_serializing_if = "Option::is_none", default)]
        #[schemars(with = "Option<u64>")]
        within: Option<Duration>,
    },
    /// At least one of them.
    Any {
        /// The tools.
        tools: Vec<ToolName>,
        /// Maximum age of a success. Default: any age.
        #[serde(rename = "withinMs", with = "crate::millis::option", skip_serializing_if = "Option::is_none", default)]
        #[schemars(with = "Option<u64>")]
        within: Option<Duration>,
    },
    /// All of them, one after the other: successes in this order must exist.
    Sequence {
        /// The tools.
        tools: Vec<ToolName>,
        /// Maximum age of a success. Default: any age.
        #[serde(rename = "withinMs", with = "crate::millis::option", skip_serializing_if = "Option::is_none", default)]
        #[schemars(with = "Option<u64>")]
        within: Option<Duration>,
    },
}

impl DependsOn {
    /// Whether the tool has no dependencies.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tools of all groups, in declaration order.
    pub fn names(&self) -> impl Iterator<Item = &ToolName> {
        self.0.iter().flat_map(DependencyGroup::tools)
    }
}

impl DependencyGroup {
    /// Maximum age of a success. Default: any age.
    #[must_use]
    pub fn within(&self) -> Option<Duration> {
        match self {
            Self::All { within, .. } | Self::Any { within, .. } | Self::Sequence { within, .. } => *within,
        }
    }

    /// The same group with a maximum age of successes.
    #[must_use]
    pub fn with_max_age(mut self, max_age: Duration) -> Self {
        match &mut self {
            Self::All { within, .. } | Self::Any { within, .. } | Self::Sequence { within, .. } => {
                *within = Some(max_age);
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
