//! Builds tools from their configs.
//!
//! In: configs, and what the application provides: functions, a guard, environment variables and a base directory. Out: a
//! `ToolBuilder`, or all problems of the config.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde_json::Value;
use toolhub_core::{Kind, NameError, ToolBuilder, ToolName};

use super::{
    ConfigEnv, Diagnostics, KeyPath, KeySegment, ProcessEnv, ToolConfig, ToolConfigError,
    plan::{self, ToolPlan},
    schema_check,
};
use crate::command::Guard;

/// Builds a tool from its config: an HTTP request, a program, or a tool of an MCP server. For your own functions, see [`ToolFactory`].
///
/// ```
/// use serde_json::json;
/// use toolhub_connect::config::{ToolConfig, create_tool};
///
/// let config: ToolConfig = serde_json::from_value(json!({
///     "name": "weather", "url": "https://api.example.com/v1/{city}", "timeout": "5s", "description": "The weather in a city.",
/// }))?;
/// let weather = create_tool(&config)?; // `hub.register(weather)` adds it to a running hub
/// # drop(weather);
///
/// let config: ToolConfig = serde_json::from_value(json!({"name": "weather", "urll": "https://api.example.com/v1"}))?;
/// assert!(create_tool(&config).unwrap_err().to_string().contains("did you mean `url`?"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// All problems of the config, each with its key and what to do.
pub fn create_tool(config: &ToolConfig) -> Result<ToolBuilder, ToolConfigError> {
    ToolFactory::new().create_tool(config)
}

/// Builds tools from configs, with the functions, guard and environment of an application.
///
/// ```
/// use toolhub_connect::config::{ToolConfig, ToolFactory};
/// use toolhub_core::{NoArguments, ToolError, tool};
///
/// async fn greet(_: NoArguments) -> Result<&'static str, ToolError> {
///     Ok("hello")
/// }
///
/// let factory = ToolFactory::new().function("greet", |name| tool(name, greet).read_only());
/// let config = ToolConfig { name: "hello".into(), builtin: Some("greet".into()), ..ToolConfig::default() };
/// let hello = factory.create_tool(&config)?; // `hub.register(hello)` adds it to a running hub
/// # drop(hello);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "a factory does nothing until it creates a tool"]
pub struct ToolFactory {
    functions: BTreeMap<String, BuildFn>,
    guard: Option<Guard>,
    config_env: Arc<dyn ConfigEnv>,
    offline: bool,
    binds_function_paths: bool,
}

type BuildFn = Arc<dyn Fn(&str) -> ToolBuilder + Send + Sync>;

/// The properties of a registered function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FunctionInfo {
    pub(super) name: String,
    pub(super) stateful: bool,
    pub(super) read_only: bool,
}

impl ToolFactory {
    /// A factory without functions and guard, with the environment and the working directory of this process.
    pub fn new() -> Self {
        Self {
            functions: BTreeMap::new(),
            guard: None,
            config_env: Arc::new(ProcessEnv),
            offline: false,
            binds_function_paths: true,
        }
    }

    /// Registers a function for `builtin = "calculator"`. `build` creates a tool of the given name, once per config.
    pub fn function(
        mut self,
        name: impl Into<String>,
        build: impl Fn(&str) -> ToolBuilder + Send + Sync + 'static,
    ) -> Self {
        self.functions.insert(name.into(), Arc::new(build));
        self
    }

    /// Runs programs under this guard. Without one, each has only its own process group.
    pub fn guard(mut self, guard: Guard) -> Self {
        self.guard = Some(guard);
        self
    }

    /// Resolves variables and paths with this environment instead of that of the process.
    pub fn config_env(mut self, env: impl ConfigEnv + 'static) -> Self {
        self.config_env = Arc::new(env);
        self
    }

    /// Does not connect to the MCP servers of tools, which therefore never appear. For checks.
    pub fn offline(mut self) -> Self {
        self.offline = true;
        self
    }

    /// Leaves every tool with a `function_path` without an implementation, also one that has the name of a function: for functions
    /// that have nothing to do with those of the older program.
    pub fn unbound_function_paths(mut self) -> Self {
        self.binds_function_paths = false;
        self
    }

    /// Builds a tool.
    ///
    /// # Errors
    /// All problems of the config, each with its key and what to do.
    pub fn create_tool(&self, config: &ToolConfig) -> Result<ToolBuilder, ToolConfigError> {
        let json = serde_json::to_value(config).unwrap_or_default();
        let is_set = |key: &KeyPath| value_at(&json, key).is_some();
        let mut diagnostics = Diagnostics::new(&*self.config_env, &is_set);
        if let Err(error) = ToolName::new(config.name.as_str()) {
            report_name_error(&error, &mut diagnostics);
        }
        schema_check::check(config, &json, &mut diagnostics);
        let plan = self.plan(&config.name, config, &KeyPath::default(), &mut diagnostics);
        #[cfg(feature = "mcp")]
        if let Some(server) = plan.as_ref().and_then(ToolPlan::mcp_server) {
            let message = format!("`server` names the MCP server `{server}` of a config file");
            let help = "write server_url = \"https://…\", or give the server the tool with `McpServer::tool_as`";
            diagnostics.report(&KeyPath::of(["server"]), message, help);
        }
        let problems = diagnostics.into_problems();
        let tool = plan.filter(|_| problems.is_empty()).and_then(|plan| self.build(&config.name, &plan));
        tool.ok_or_else(|| ToolConfigError { tool: config.name.clone(), problems })
    }

    /// Resolves the config of a tool of this name. Problems are reported at keys below `at`; if there are any, the plan must not be
    /// built. `None` if the source of the tool cannot be determined. For applications that have a config of many tools, compare
    /// plans, or know where each key was written.
    pub fn plan(
        &self,
        name: &str,
        config: &ToolConfig,
        at: &KeyPath,
        diagnostics: &mut Diagnostics<'_>,
    ) -> Option<ToolPlan> {
        plan::plan(name, config, at, self, diagnostics)
    }

    /// Builds the tool of a plan. `None` if the plan names an unknown function, which a plan of the same factory never does, or if it
    /// belongs to the plan of an MCP server.
    #[must_use]
    pub fn build(&self, name: &str, plan: &ToolPlan) -> Option<ToolBuilder> {
        plan.tool(name, self)
    }

    /// The names of the functions, sorted.
    pub fn function_names(&self) -> impl Iterator<Item = &str> {
        self.functions.keys().map(String::as_str)
    }

    /// The properties of a function, read from a temporary tool.
    pub(super) fn describe_function(&self, name: &str) -> Option<FunctionInfo> {
        let tool = self.build_function(name, name)?;
        let (stateful, mut read_only) = (*tool.kind() == Kind::Stateful, false);
        drop(tool.annotations(|own| read_only = own.read_only));
        Some(FunctionInfo { name: name.into(), stateful, read_only })
    }

    /// The properties of the function that implements the tool of this name with a `function_path`.
    pub(super) fn describe_bound_function(&self, tool: &str) -> Option<FunctionInfo> {
        self.describe_function(tool).filter(|_| self.binds_function_paths)
    }

    pub(super) fn build_function(&self, function: &str, name: &str) -> Option<ToolBuilder> {
        self.functions.get(function).map(|build| build(name))
    }

    #[cfg(feature = "mcp")]
    pub(super) fn is_offline(&self) -> bool {
        self.offline
    }

    pub(super) fn command_guard(&self) -> Option<&Guard> {
        self.guard.as_ref()
    }
}

fn report_name_error(error: &NameError, diagnostics: &mut Diagnostics<'_>) {
    diagnostics.report(&KeyPath::of(["name"]), error.to_string(), "choose a name, such as \"my_tool\"");
}

/// The value at a key.
fn value_at<'a>(config: &'a Value, key: &KeyPath) -> Option<&'a Value> {
    key.0.iter().try_fold(config, |value, segment| match segment {
        KeySegment::Key(key) => value.get(key),
        KeySegment::Index(index) => value.get(index),
    })
}

impl Default for ToolFactory {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ToolFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let functions: Vec<&str> = self.function_names().collect();
        f.debug_struct("ToolFactory").field("functions", &functions).field("guard", &self.guard).finish_non_exhaustive()
    }
}
