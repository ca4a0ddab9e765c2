//! The model of the agents: asks for a call in each of a few turns, then gives an answer.
//!
//! In: prompts. Out: replies that depend on the conversation, with a number of its own in each; and the questions, for the checks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use toolhub::{export::Format, prelude::*};
use toolhub_agent::{Message, Model, ModelError, Prompt, Reply, StopReason, StreamSink, ToolCall};

use super::world::{Question, World};

pub(super) struct SimulatedModel {
    world: Arc<World>,
    node: usize,
    /// The next number of a reply, different on each node.
    next_number: AtomicU64,
}

impl SimulatedModel {
    pub(super) fn new(world: &Arc<World>, node: usize) -> Arc<Self> {
        Arc::new(Self { world: world.clone(), node, next_number: AtomicU64::new(node as u64 * 1_000) })
    }
}

/// The last message of the user, and how many replies followed.
fn turn_of(messages: &[Message]) -> (String, usize) {
    let mut replies = 0;
    for message in messages.iter().rev() {
        match message {
            Message::User { content } => return (content.clone(), replies),
            Message::Assistant { .. } => replies += 1,
            _ => {}
        }
    }
    (String::new(), replies)
}

impl Model for SimulatedModel {
    fn name(&self) -> &str {
        "simulated"
    }

    fn format(&self) -> Format {
        Format::OpenAi
    }

    fn ask<'a>(&'a self, prompt: Prompt<'a>, _: &'a StreamSink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(async move {
            let (world, node) = (&self.world, self.node);
            world.faults[node].thawed().await;
            let turn = turn_of(prompt.messages);
            world.ledger().questions.push(Question { node, turn: turn.clone(), asked: world.now() });
            // As long as the text is.
            tokio::time::sleep(Duration::from_millis(100 * (turn.0.len() + turn.1) as u64)).await;
            world.faults[node].thawed().await;
            let (text, round) = turn;
            if round >= 2 || !prompt.may_call {
                return Ok(Reply { text: format!("Answer to {text}"), ..Reply::default() });
            }
            let number = self.next_number.fetch_add(1, Ordering::Relaxed);
            let arguments = json!({"message": text, "round": round, "number": number, "ms": 300});
            let id = format!("model_{number}").into();
            let call = ToolCall { id, tool: "note".into(), arguments, malformed: None, extra: None };
            Ok(Reply { calls: vec![call], stop: StopReason::Calls, ..Reply::default() })
        })
    }
}
