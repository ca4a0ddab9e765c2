//! A model with scripted replies, which records its prompts.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use toolhub::{export::Format, prelude::*};
use toolhub_agent::{
    Message, Model, ModelError, ModelFault, Prompt, Reply, StopReason, StreamPart, StreamSink, ToolCall, Usage,
};

/// The next reply of a model.
pub(crate) type ScriptedReply = Result<Reply, ModelFault>;

/// A model with scripted replies.
#[derive(Default)]
pub(crate) struct ScriptedModel {
    replies: Mutex<VecDeque<ScriptedReply>>,
    prompts: Mutex<Vec<RecordedPrompt>>,
}

/// A recorded prompt.
#[derive(Debug, Clone)]
pub(crate) struct RecordedPrompt {
    pub(crate) system: String,
    pub(crate) messages: Vec<Message>,
    pub(crate) tools: Vec<String>,
    pub(crate) may_call: bool,
    pub(crate) traceparent: Option<String>,
}

/// A reply without calls.
pub(crate) fn text_reply(text: &str) -> ScriptedReply {
    Ok(Reply { text: text.into(), usage: Usage { input_tokens: 10, output_tokens: 5 }, ..Reply::default() })
}

/// A reply with calls.
pub(crate) fn calls_reply<const N: usize>(calls: [(&str, Value); N]) -> ScriptedReply {
    let call = |(index, (tool, arguments)): (usize, (&str, Value))| ToolCall {
        id: format!("model_{index}").into(),
        tool: tool.into(),
        arguments,
        malformed: None,
        extra: None,
    };
    let calls = calls.into_iter().enumerate().map(call).collect();
    Ok(Reply {
        calls,
        stop: StopReason::Calls,
        usage: Usage { input_tokens: 10, output_tokens: 5 },
        ..Reply::default()
    })
}

impl ScriptedModel {
    pub(crate) fn new(replies: impl IntoIterator<Item = ScriptedReply>) -> Arc<Self> {
        Arc::new(Self { replies: Mutex::new(replies.into_iter().collect()), prompts: Mutex::default() })
    }

    /// All prompts so far, the oldest first.
    pub(crate) fn prompts(&self) -> Vec<RecordedPrompt> {
        self.prompts.lock().unwrap().clone()
    }
}

impl Model for ScriptedModel {
    fn name(&self) -> &str {
        "scripted"
    }

    fn format(&self) -> Format {
        Format::OpenAi
    }

    fn ask<'a>(&'a self, prompt: Prompt<'a>, sink: &'a StreamSink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let name = |tool: &Value| tool["function"]["name"].as_str().unwrap().to_owned();
        self.prompts.lock().unwrap().push(RecordedPrompt {
            system: prompt.system.into(),
            messages: prompt.messages.to_vec(),
            tools: prompt.tools.iter().map(name).collect(),
            may_call: prompt.may_call,
            traceparent: prompt.trace.map(toolhub::TraceContext::traceparent),
        });
        let next_reply = self.replies.lock().unwrap().pop_front();
        Box::pin(async move {
            match next_reply {
                Some(Ok(reply)) => {
                    if prompt.stream {
                        for piece in reply.text.split_inclusive(' ') {
                            sink(StreamPart::Text(piece));
                        }
                    }
                    Ok(reply)
                }
                Some(Err(fault)) => Err(ModelError::new(fault, "the model failed")),
                // Out of replies: never answers.
                None => std::future::pending().await,
            }
        })
    }
}
