//! A model that says what a test wrote for it, and remembers what it was told.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use toolhub::{export::Format, prelude::*};
use toolhub_agent::{AskedCall, Hear, Heard, Message, Model, ModelError, ModelFault, Prompt, Reply, Stop, Usage};

/// What a model says next.
pub(crate) type Line = Result<Reply, ModelFault>;

/// A model with lines to say.
#[derive(Default)]
pub(crate) struct Actor {
    lines: Mutex<VecDeque<Line>>,
    told: Mutex<Vec<Told>>,
}

/// What a model was told.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) system: String,
    pub(crate) messages: Vec<Message>,
    pub(crate) tools: Vec<String>,
    pub(crate) may_call: bool,
    pub(crate) traceparent: Option<String>,
}

/// An answer without calls.
pub(crate) fn says(text: &str) -> Line {
    Ok(Reply { text: text.into(), usage: Usage { input_tokens: 10, output_tokens: 5 }, ..Reply::default() })
}

/// An answer that asks for calls.
pub(crate) fn asks<const N: usize>(calls: [(&str, Value); N]) -> Line {
    let call = |(at, (tool, arguments)): (usize, (&str, Value))| AskedCall {
        id: format!("model_{at}").into(),
        tool: tool.into(),
        arguments,
        malformed: None,
        extra: None,
    };
    let calls = calls.into_iter().enumerate().map(call).collect();
    Ok(Reply { calls, stop: Stop::Calls, usage: Usage { input_tokens: 10, output_tokens: 5 }, ..Reply::default() })
}

impl Actor {
    pub(crate) fn new(lines: impl IntoIterator<Item = Line>) -> Arc<Self> {
        Arc::new(Self { lines: Mutex::new(lines.into_iter().collect()), told: Mutex::default() })
    }

    /// What it was told each time, the first time first.
    pub(crate) fn told(&self) -> Vec<Told> {
        self.told.lock().unwrap().clone()
    }
}

impl Model for Actor {
    fn name(&self) -> &str {
        "actor"
    }

    fn format(&self) -> Format {
        Format::OpenAi
    }

    fn ask<'a>(&'a self, prompt: Prompt<'a>, hear: &'a Hear) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let name = |tool: &Value| tool["function"]["name"].as_str().unwrap().to_owned();
        self.told.lock().unwrap().push(Told {
            system: prompt.system.into(),
            messages: prompt.messages.to_vec(),
            tools: prompt.tools.iter().map(name).collect(),
            may_call: prompt.may_call,
            traceparent: prompt.trace.map(toolhub::TraceContext::traceparent),
        });
        let line = self.lines.lock().unwrap().pop_front();
        Box::pin(async move {
            match line {
                Some(Ok(reply)) => {
                    if prompt.stream {
                        for piece in reply.text.split_inclusive(' ') {
                            hear(Heard::Text(piece));
                        }
                    }
                    Ok(reply)
                }
                Some(Err(fault)) => Err(ModelError::new(fault, "the model has a bad day")),
                // It has nothing more to say, and thinks for ever.
                None => std::future::pending().await,
            }
        })
    }
}
