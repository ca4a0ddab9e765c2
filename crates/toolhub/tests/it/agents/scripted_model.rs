//! A model that says what a test wrote for it, and remembers what it was told.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use toolhub::{export::Format, prelude::*};
use toolhub_agent::{
    AskedCall, Message, Model, ModelError, ModelFault, Prompt, Reply, Stop, StreamPart, StreamSink, Usage,
};

/// What a model says next.
pub(crate) type ScriptedReply = Result<Reply, ModelFault>;

/// A model with lines to say.
#[derive(Default)]
pub(crate) struct ScriptedModel {
    replies: Mutex<VecDeque<ScriptedReply>>,
    prompts: Mutex<Vec<RecordedPrompt>>,
}

/// What a model was told.
#[derive(Debug, Clone)]
pub(crate) struct RecordedPrompt {
    pub(crate) system: String,
    pub(crate) messages: Vec<Message>,
    pub(crate) tools: Vec<String>,
    pub(crate) may_call: bool,
    pub(crate) traceparent: Option<String>,
}

/// An answer without calls.
pub(crate) fn text_reply(text: &str) -> ScriptedReply {
    Ok(Reply { text: text.into(), usage: Usage { input_tokens: 10, output_tokens: 5 }, ..Reply::default() })
}

/// An answer that asks for calls.
pub(crate) fn calls_reply<const N: usize>(calls: [(&str, Value); N]) -> ScriptedReply {
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

impl ScriptedModel {
    pub(crate) fn new(lines: impl IntoIterator<Item = ScriptedReply>) -> Arc<Self> {
        Arc::new(Self { replies: Mutex::new(lines.into_iter().collect()), prompts: Mutex::default() })
    }

    /// What it was told each time, the first time first.
    pub(crate) fn prompts(&self) -> Vec<RecordedPrompt> {
        self.prompts.lock().unwrap().clone()
    }
}

impl Model for ScriptedModel {
    fn name(&self) -> &str {
        "actor"
    }

    fn format(&self) -> Format {
        Format::OpenAi
    }

    fn ask<'a>(&'a self, prompt: Prompt<'a>, hear: &'a StreamSink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let name = |tool: &Value| tool["function"]["name"].as_str().unwrap().to_owned();
        self.prompts.lock().unwrap().push(RecordedPrompt {
            system: prompt.system.into(),
            messages: prompt.messages.to_vec(),
            tools: prompt.tools.iter().map(name).collect(),
            may_call: prompt.may_call,
            traceparent: prompt.trace.map(toolhub::TraceContext::traceparent),
        });
        let line = self.replies.lock().unwrap().pop_front();
        Box::pin(async move {
            match line {
                Some(Ok(reply)) => {
                    if prompt.stream {
                        for piece in reply.text.split_inclusive(' ') {
                            hear(StreamPart::Text(piece));
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
