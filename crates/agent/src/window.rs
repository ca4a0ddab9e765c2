//! How much of a long conversation a model is told.
//!
//! In: how large each message is, and how much there is room for. Out: which are told. The oldest go first; a call and its result
//! go together, and the question that is being answered always stays. What is left out grows in strides, so that
//! for many steps the model is told the same beginning and its provider need not read that again.

use crate::message::Message;

/// A message and how large the conversation is up to its end.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SizedMessage {
    pub(crate) message: Message,
    /// In tokens, as far as they can be guessed.
    pub(crate) tokens_so_far: u64,
}

/// About how many tokens a text has. Three bytes for each: a little too many for English, about right for Chinese.
pub(crate) fn estimate_tokens(text: &str) -> u64 {
    text.len() as u64 / 3 + 1
}

/// About how many tokens a message has.
pub(crate) fn message_tokens(message: &Message) -> u64 {
    // What a provider writes around each message and call.
    const OVERHEAD_TOKENS: u64 = 8;
    // What providers count for a picture of usual size.
    const IMAGE_TOKENS: u64 = 1_600;
    OVERHEAD_TOKENS
        + match message {
            Message::User { content } => estimate_tokens(content),
            Message::Assistant { content, reasoning, calls } => {
                let call =
                    |call: &crate::message::AskedCall| OVERHEAD_TOKENS + estimate_tokens(&call.arguments.to_string());
                estimate_tokens(content) + estimate_tokens(reasoning) + calls.iter().map(call).sum::<u64>()
            }
            Message::Tool { results } => {
                let result = |result: &crate::message::CallResult| {
                    OVERHEAD_TOKENS + estimate_tokens(&result.text) + IMAGE_TOKENS * result.pictures.len() as u64
                };
                results.iter().map(result).sum()
            }
        }
}

/// Up to which size the beginning of a conversation is left out, so that the rest fits.
pub(crate) fn trim_point(whole: u64, room: u64) -> u64 {
    let stride = (room / 4).max(1);
    whole.saturating_sub(room).div_ceil(stride) * stride
}

/// The messages of the end of a conversation that are told. `from` is the size up to which all is left out.
pub(crate) fn select_messages(tail: &[SizedMessage], from: u64) -> Vec<Message> {
    let before = |at: usize| if at == 0 { 0 } else { tail[at - 1].tokens_so_far };
    let question = tail.iter().rposition(|it| matches!(it.message, Message::User { .. })).unwrap_or(0);
    // A turn begins with what the user says.
    let turn = (0..=question).find(|at| {
        let begins = matches!(tail.get(*at), Some(SizedMessage { message: Message::User { .. }, .. }));
        begins && (before(*at) >= from || *at == question)
    });
    let turn = turn.unwrap_or(question);
    let mut told: Vec<Message> = Vec::with_capacity(tail.len() - turn.min(tail.len()));
    // Where even this turn is too long, its oldest steps are left out; the question itself stays.
    let dropped = |at: usize| {
        turn == question && at > question && before(at) < from && {
            // The last step is never left out: the model must hear what came of it.
            let last = tail.iter().rposition(|it| matches!(it.message, Message::Assistant { .. }));
            last.is_some_and(|last| at < last)
        }
    };
    let mut with_its_call = false;
    for (at, it) in tail.iter().enumerate().skip(turn) {
        let gone = match it.message {
            Message::Tool { .. } => with_its_call,
            _ => dropped(at),
        };
        with_its_call = gone;
        if !gone {
            told.push(it.message.clone());
        }
    }
    told
}

#[cfg(test)]
mod tests;
