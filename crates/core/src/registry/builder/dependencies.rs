//! Which tools must have succeeded before a tool can be used.

use std::time::Duration;

use smol_str::SmolStr;

use super::ToolBuilder;
use toolhub_types::tool::{DependencyGroup, NameError, ToolName};

/// A dependency with unchecked names; `build` checks them.
pub(super) struct DependencySpec {
    pub(super) names: Vec<SmolStr>,
    within: Option<Duration>,
    group: fn(Vec<ToolName>) -> DependencyGroup,
}

impl ToolBuilder {
    /// Can be used in a thread once this tool has succeeded there.
    pub fn after(self, tool: impl Into<SmolStr>) -> Self {
        self.after_all([tool])
    }

    /// Can be used in a thread once each of these has succeeded there.
    pub fn after_all<N: Into<SmolStr>>(self, tools: impl IntoIterator<Item = N>) -> Self {
        self.add_dependency(tools, |tools| DependencyGroup::All { tools, within: None })
    }

    /// Can be used in a thread once one of these has succeeded there.
    pub fn after_any<N: Into<SmolStr>>(self, tools: impl IntoIterator<Item = N>) -> Self {
        self.add_dependency(tools, |tools| DependencyGroup::Any { tools, within: None })
    }

    /// Can be used in a thread once each of these has succeeded there, in this order.
    pub fn after_sequence<N: Into<SmolStr>>(self, tools: impl IntoIterator<Item = N>) -> Self {
        self.add_dependency(tools, |tools| DependencyGroup::Sequence { tools, within: None })
    }

    /// Maximum age of the successes that the last `after…` requires.
    pub fn within(mut self, time: Duration) -> Self {
        match self.depends_on.last_mut() {
            Some(last) => last.within = Some(time),
            // There is no dependency to limit: add an empty one, which `build` refuses.
            None => return self.after_all(Vec::<SmolStr>::new()),
        }
        self
    }

    fn add_dependency<N: Into<SmolStr>>(
        mut self,
        tools: impl IntoIterator<Item = N>,
        group: fn(Vec<ToolName>) -> DependencyGroup,
    ) -> Self {
        self.depends_on.push(DependencySpec {
            names: tools.into_iter().map(Into::into).collect(),
            within: None,
            group,
        });
        self
    }
}

impl DependencySpec {
    pub(super) fn into_group(self) -> Result<DependencyGroup, NameError> {
        let names = self.names.into_iter().map(ToolName::new).collect::<Result<_, _>>()?;
        let group = (self.group)(names);
        Ok(match self.within {
            Some(limit) => group.with_max_age(limit),
            None => group,
        })
    }
}
