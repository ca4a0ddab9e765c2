//! Selects the messages of a long conversation that fit into the model's context window.
//!
//! In: the size of each message, and the token budget. Out: the messages to send. The oldest are dropped first; a call
//! and its result are dropped together, and the user message that is being answered always stays. The trim point moves
//! in strides, so that many requests share the same prefix and hit the provider's prompt cache.

use crate::message::Message;

/// A message and the size of the conversation up to its end.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SizedMessage {
    pub(crate) message: Message,
    /// In estimated tokens.
    pub(crate) tokens_so_far: u64,
}

/// Estimates the tokens of a text at three bytes each: a little too many for English, about right for Chinese.
pub(crate) fn estimate_tokens(text: &str) -> u64 {
    text.len() as u64 / 3 + 1
}

/// Estimates the tokens of a message.
pub(crate) fn message_tokens(message: &Message) -> u64 {
    // The provider's framing of each message and call.
    const OVERHEAD_TOKENS: u64 = 8;
    // What providers count for an image of usual size.
    const IMAGE_TOKENS: u64 = 1_600;
    OVERHEAD_TOKENS
        + match message {
            Message::User { content } => estimate_tokens(content),
            Message::Assistant { content, reasoning, calls } => {
                let call =
                    |call: &crate::message::ToolCall| OVERHEAD_TOKENS + estimate_tokens(&call.arguments.to_string());
                estimate_tokens(content) + estimate_tokens(reasoning) + calls.iter().map(call).sum::<u64>()
            }
            Message::Tool { results } => {
                let result = |result: &crate::message::CallResult| {
                    OVERHEAD_TOKENS + estimate_tokens(&result.text) + IMAGE_TOKENS * result.images.len() as u64
                };
                results.iter().map(result).sum()
            }
        }
}

/// How many tokens at the start of a conversation to drop, so that the rest fits the budget.
pub(crate) fn trim_point(total: u64, budget: u64) -> u64 {
    let stride = (budget / 4).max(1);
    total.saturating_sub(budget).div_ceil(stride) * stride
}

/// The messages to send, from the tail of a conversation. `trim_point` is the size up to which messages are dropped.
pub(crate) fn select_messages(tail: &[SizedMessage], trim_point: u64) -> Vec<Message> {
    let tokens_before = |index: usize| if index == 0 { 0 } else { tail[index - 1].tokens_so_far };
    let question = tail.iter().rposition(|sized| matches!(sized.message, Message::User { .. })).unwrap_or(0);
    // A turn begins with a message of the user.
    let turn = (0..=question).find(|index| {
        let begins = matches!(tail.get(*index), Some(SizedMessage { message: Message::User { .. }, .. }));
        begins && (tokens_before(*index) >= trim_point || *index == question)
    });
    let turn = turn.unwrap_or(question);
    let mut selected: Vec<Message> = Vec::with_capacity(tail.len() - turn.min(tail.len()));
    // If even the last turn is too long, its oldest steps are dropped; the user message stays.
    let is_dropped = |index: usize| {
        turn == question && index > question && tokens_before(index) < trim_point && {
            // The last step is never dropped: the model must see its results.
            let last_step = tail.iter().rposition(|sized| matches!(sized.message, Message::Assistant { .. }));
            last_step.is_some_and(|last_step| index < last_step)
        }
    };
    let mut previous_dropped = false;
    for (index, sized) in tail.iter().enumerate().skip(turn) {
        // Results share the fate of their calls.
        let dropped = match sized.message {
            Message::Tool { .. } => previous_dropped,
            _ => is_dropped(index),
        };
        previous_dropped = dropped;
        if !dropped {
            selected.push(sized.message.clone());
        }
    }
    selected
}

#[cfg(test)]
mod tests;
