//! Makes tools of what is written about them.
//!
//! In: configs, at run time; and what a program brings: functions, a guard, variables and folders. Out: tools in the making, or
//! everything that is wrong at once.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde_json::Value;
use toolhub_core::{Kind, NameError, ToolBuilder, ToolName};

use super::{
    ConfigEnv, Diagnostics, KeyPath, KeySegment, ProcessEnv, ToolConfig, ToolConfigError,
    plan::{self, ToolPlan},
    schema_check,
};
use crate::command::Guard;

/// Makes a tool of what is written about it: a request or a program. For functions of your own, see [`ToolFactory`].
///
/// ```
/// use serde_json::json;
/// use toolhub_connect::config::{ToolConfig, create_tool};
///
/// let config: ToolConfig = serde_json::from_value(json!({
///     "name": "weather", "url": "https://api.example.com/v1/{city}", "timeout": "5s", "description": "The weather in a city.",
/// }))?;
/// let weather = create_tool(&config)?; // `hub.register(weather)` adds it to a hub that runs
/// # drop(weather);
///
/// let config: ToolConfig = serde_json::from_value(json!({"name": "weather", "urll": "https://api.example.com/v1"}))?;
/// assert!(create_tool(&config).unwrap_err().to_string().contains("did you mean `url`?"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Everything that is wrong with it, each with its key and what to do.
pub fn create_tool(config: &ToolConfig) -> Result<ToolBuilder, ToolConfigError> {
    ToolFactory::new().create_tool(config)
}

/// Makes tools of what is written about them, with what a program brings.
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
/// let hello = factory.create_tool(&config)?; // `hub.register(hello)` adds it to a hub that runs
/// # drop(hello);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "a factory does nothing until a tool is asked of it"]
pub struct ToolFactory {
    functions: BTreeMap<String, BuildFn>,
    guard: Option<Guard>,
    config_env: Arc<dyn ConfigEnv>,
}

type BuildFn = Arc<dyn Fn(&str) -> ToolBuilder + Send + Sync>;

/// What a function says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FunctionInfo {
    pub(super) name: String,
    pub(super) stateful: bool,
    pub(super) read_only: bool,
}

impl ToolFactory {
    /// One that knows no functions and no guard, with the environment and the working folder of this process.
    pub fn new() -> Self {
        Self { functions: BTreeMap::new(), guard: None, config_env: Arc::new(ProcessEnv) }
    }

    /// A function that configs may name: `builtin = "calculator"`. It makes a tool of the name it is given, anew each time.
    pub fn function(
        mut self,
        name: impl Into<String>,
        make: impl Fn(&str) -> ToolBuilder + Send + Sync + 'static,
    ) -> Self {
        self.functions.insert(name.into(), Arc::new(make));
        self
    }

    /// Programs run below this guard. Without one they have process groups of their own.
    pub fn guard(mut self, guard: Guard) -> Self {
        self.guard = Some(guard);
        self
    }

    /// Where variables and paths come from, in the place of this process.
    pub fn config_env(mut self, ground: impl ConfigEnv + 'static) -> Self {
        self.config_env = Arc::new(ground);
        self
    }

    /// Makes a tool.
    ///
    /// # Errors
    /// Everything that is wrong with the config, each with its key and what to do.
    pub fn create_tool(&self, config: &ToolConfig) -> Result<ToolBuilder, ToolConfigError> {
        let written = serde_json::to_value(config).unwrap_or_default();
        let said = |key: &KeyPath| value_at(&written, key).is_some();
        let mut desk = Diagnostics::new(&*self.config_env, &said);
        if let Err(error) = ToolName::new(config.name.as_str()) {
            report_name_error(&error, &mut desk);
        }
        schema_check::check(config, &written, &mut desk);
        let plan = self.plan(&config.name, config, &KeyPath::default(), &mut desk);
        let problems = desk.into_problems();
        let made = plan.filter(|_| problems.is_empty()).and_then(|plan| self.build(&config.name, &plan));
        made.ok_or_else(|| ToolConfigError { tool: config.name.clone(), problems })
    }

    /// Works out what holds for a tool of this name. What is wrong is told the desk, at keys below `at`, and no tool is to be made of
    /// the plan then; `None` when nobody can tell what the tool does. For whoever has a config of many tools, compares plans, or knows
    /// where each key was written.
    pub fn plan(&self, name: &str, config: &ToolConfig, at: &KeyPath, desk: &mut Diagnostics<'_>) -> Option<ToolPlan> {
        plan::plan(name, config, at, self, desk)
    }

    /// Makes the tool of a plan. `None` where its function is none of these, which no plan of the same factory says.
    #[must_use]
    pub fn build(&self, name: &str, plan: &ToolPlan) -> Option<ToolBuilder> {
        plan.tool(name, self)
    }

    /// The names of the functions, in order.
    pub fn function_names(&self) -> impl Iterator<Item = &str> {
        self.functions.keys().map(String::as_str)
    }

    /// What a function says about itself. A tool is made for it, and let go.
    pub(super) fn describe_function(&self, name: &str) -> Option<FunctionInfo> {
        let tool = self.build_function(name, name)?;
        let (stateful, mut read_only) = (*tool.kind() == Kind::Stateful, false);
        drop(tool.annotations(|own| read_only = own.read_only));
        Some(FunctionInfo { name: name.into(), stateful, read_only })
    }

    pub(super) fn build_function(&self, function: &str, name: &str) -> Option<ToolBuilder> {
        self.functions.get(function).map(|make| make(name))
    }

    pub(super) fn command_guard(&self) -> Option<&Guard> {
        self.guard.as_ref()
    }
}

fn report_name_error(error: &NameError, desk: &mut Diagnostics<'_>) {
    desk.report(&KeyPath::of(["name"]), error.to_string(), "choose a name, such as \"my_tool\"");
}

/// What stands at a key.
fn value_at<'a>(written: &'a Value, key: &KeyPath) -> Option<&'a Value> {
    key.0.iter().try_fold(written, |value, step| match step {
        KeySegment::Key(key) => value.get(key),
        KeySegment::Index(place) => value.get(place),
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
