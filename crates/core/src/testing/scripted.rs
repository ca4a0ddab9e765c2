//! Tools that follow a script, one step per execution.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_core::future::BoxFuture;
use serde_json::Value;

use crate::{
    execution::{Executor, Job, Reply},
    registry::ToolBuilder,
};
use toolhub_types::{error::ToolError, tool::Kind};

/// What a scripted tool does when it is executed.
#[derive(Debug, Clone)]
pub enum ScriptStep {
    /// Returns this.
    Return(Value),
    /// Fails with this.
    Fail(ToolError),
    /// Panics with this text.
    Panic(String),
    /// Waits, then continues with the next step.
    Wait(Duration),
    /// Reports progress, then continues with the next step.
    Progress(String),
    /// Never returns.
    Hang,
}

/// Handle of a scripted tool: its recorded arguments and its script.
#[derive(Debug, Clone)]
pub struct ScriptedTool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    steps: Mutex<VecDeque<ScriptStep>>,
    arguments: Mutex<Vec<Value>>,
}

impl ScriptedTool {
    /// The arguments of every execution so far.
    #[must_use]
    pub fn recorded_arguments(&self) -> Vec<Value> {
        self.inner.arguments.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Clears the recorded arguments.
    pub fn clear(&self) {
        *self.inner.arguments.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new();
    }

    /// Adds a step at the end of the script.
    pub fn push_step(&self, step: ScriptStep) {
        self.inner.steps.lock().unwrap_or_else(PoisonError::into_inner).push_back(step);
    }
}

/// A tool that takes any arguments and follows a script. After the last step it always returns `null`.
pub fn scripted(name: &str, steps: impl IntoIterator<Item = ScriptStep>) -> (ToolBuilder, ScriptedTool) {
    let steps = Mutex::new(steps.into_iter().collect());
    let inner = Arc::new(Inner { steps, arguments: Mutex::default() });
    let tool = ToolBuilder::new(name, Kind::Stateless).description("Does what the test says.");
    (tool.executor(Arc::new(ScriptedTool { inner: inner.clone() })), ScriptedTool { inner })
}

impl Executor for ScriptedTool {
    fn execute<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Reply, ToolError>> {
        Box::pin(async move {
            self.inner.arguments.lock().unwrap_or_else(PoisonError::into_inner).push(job.arguments.clone());
            loop {
                let step = self.inner.steps.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                match step {
                    None => return Ok(Reply::default()),
                    Some(ScriptStep::Return(value)) => return Ok(value.into()),
                    Some(ScriptStep::Fail(error)) => return Err(error),
                    Some(ScriptStep::Panic(text)) => panic!("{text}"),
                    Some(ScriptStep::Wait(time)) => tokio::time::sleep(time).await,
                    Some(ScriptStep::Progress(text)) => job.context.progress(text),
                    Some(ScriptStep::Hang) => std::future::pending().await,
                }
            }
        })
    }
}
