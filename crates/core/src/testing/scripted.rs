//! Tools that do what a script says, one step per execution.

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
pub enum Step {
    /// Returns this.
    Return(Value),
    /// Fails with this.
    Fail(ToolError),
    /// Panics with this text.
    Panic(String),
    /// Waits, then goes on with the next step of the script.
    Wait(Duration),
    /// Says how far it is, then goes on with the next step of the script.
    Progress(String),
    /// Never returns.
    Hang,
}

/// Looks back at what a scripted tool was asked.
#[derive(Debug, Clone)]
pub struct Scripted {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    steps: Mutex<VecDeque<Step>>,
    asked: Mutex<Vec<Value>>,
}

impl Scripted {
    /// The arguments of every execution so far.
    #[must_use]
    pub fn asked(&self) -> Vec<Value> {
        self.inner.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets what it was asked so far.
    pub fn forget(&self) {
        *self.inner.asked.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new();
    }

    /// Adds a step at the end of the script.
    pub fn then(&self, step: Step) {
        self.inner.steps.lock().unwrap_or_else(PoisonError::into_inner).push_back(step);
    }
}

/// A tool that takes any arguments and follows a script. After the last step it returns `null` for ever.
pub fn scripted(name: &str, steps: impl IntoIterator<Item = Step>) -> (ToolBuilder, Scripted) {
    let steps = Mutex::new(steps.into_iter().collect());
    let inner = Arc::new(Inner { steps, asked: Mutex::default() });
    let tool = ToolBuilder::new(name, Kind::Stateless).description("Does what the test says.");
    (tool.run_by(Arc::new(Scripted { inner: inner.clone() })), Scripted { inner })
}

impl Executor for Scripted {
    fn execute<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Reply, ToolError>> {
        Box::pin(async move {
            self.inner.asked.lock().unwrap_or_else(PoisonError::into_inner).push(job.arguments.clone());
            loop {
                let step = self.inner.steps.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                match step {
                    None => return Ok(Reply::default()),
                    Some(Step::Return(value)) => return Ok(value.into()),
                    Some(Step::Fail(error)) => return Err(error),
                    Some(Step::Panic(text)) => panic!("{text}"),
                    Some(Step::Wait(time)) => tokio::time::sleep(time).await,
                    Some(Step::Progress(text)) => job.context.progress(text),
                    Some(Step::Hang) => std::future::pending().await,
                }
            }
        })
    }
}
