//! The epochs of a bucket, and which commits survived from one to the next.
//!
//! In: what scripts say of a bucket (`script/epoch.lua`). Out: whether a commit that was acknowledged earlier is still there. The commits of
//! a bucket are numbered, and a server that loses some loses the last ones: a commit is there if the next epoch began after its number.

use redis::Value;
use smol_str::SmolStr;
use toolhub_storage::backend::StoreError;

use super::{answer, script::ScriptCall};

/// An epoch of a bucket. Servers that lost contact with each other may use the same number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Epoch {
    pub(super) number: u64,
    /// The history of the server's data that it belongs to.
    pub(super) server: SmolStr,
}

/// A commit by its place in the history of its bucket; number 0 is the begin of an epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) epoch: Epoch,
    pub(super) number: u64,
}

/// All epochs that a server knows of a bucket, oldest first, with the number of the last commit before each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct History(Vec<(Epoch, u64)>);

/// What a script says of its bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BucketState {
    pub(super) epoch: Epoch,
    /// The number of the commit; `None` if it wrote nothing.
    pub(super) number: Option<u64>,
    /// Of an epoch that the client did not know.
    pub(super) history: Option<History>,
}

/// Adds what a node knows of a bucket to the arguments of a script.
pub(super) fn add_position(call: &mut ScriptCall, last: Option<Position>) {
    let (epoch, server, number) = match last {
        Some(Position { epoch, number }) => (epoch.number.to_string(), epoch.server, number),
        None => ("-1".to_owned(), "".into(), 0),
    };
    call.arg(epoch);
    call.arg(server.as_str());
    call.arg(number.to_string());
}

impl BucketState {
    /// Reads what `describe_epoch` returns.
    pub(super) fn parse(value: Value) -> Result<Self, StoreError> {
        let mut parts = answer::into_array(value)?.into_iter();
        let mut next = || parts.next().ok_or_else(answer::unexpected);
        let epoch = answer::as_integer(&next()?)?.cast_unsigned();
        let server = answer::into_text(next()?)?.into();
        let number = answer::as_integer(&next()?)?.cast_unsigned();
        let mut epochs = Vec::new();
        while let Some(epoch) = parts.next() {
            let since = answer::into_text(parts.next().ok_or_else(answer::unexpected)?)?;
            let (before, server) = since.split_once(' ').ok_or_else(answer::unexpected)?;
            let number = answer::into_text(epoch)?.parse().map_err(|_| answer::unexpected())?;
            let before = before.parse().map_err(|_| answer::unexpected())?;
            epochs.push((Epoch { number, server: server.into() }, before));
        }
        epochs.sort_unstable_by_key(|(epoch, _)| epoch.number);
        let history = (!epochs.is_empty()).then_some(History(epochs));
        Ok(Self { epoch: Epoch { number: epoch, server }, number: (number > 0).then_some(number), history })
    }
}

impl History {
    /// The number of the last commit of this epoch that is still there; `None` if the epoch goes on.
    pub(super) fn end_of(&self, epoch: &Epoch) -> Option<u64> {
        let next = self.0.partition_point(|(known, _)| known.number <= epoch.number);
        let is_known = self.0[..next].last().is_some_and(|(known, _)| known == epoch);
        match self.0.get(next) {
            None if is_known => None,
            Some((_, before)) if is_known || next == 0 => Some(*before),
            // Another server wrote it, and nothing of it is here.
            _ => Some(0),
        }
    }

    /// Whether a commit is still there.
    pub(super) fn contains(&self, commit: &Position) -> bool {
        self.end_of(&commit.epoch).is_none_or(|end| commit.number <= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(number: u64, server: &str) -> Epoch {
        Epoch { number, server: server.into() }
    }

    #[test]
    fn a_commit_is_there_unless_the_next_epoch_began_before_it() {
        let history = History(vec![(epoch(5, "a"), 40), (epoch(7, "b"), 90), (epoch(9, "a"), 95)]);
        for (at, number, expected) in [
            (epoch(5, "a"), 90, true),
            (epoch(5, "a"), 91, false),
            (epoch(7, "b"), 95, true),
            (epoch(7, "b"), 96, false),
            (epoch(9, "a"), 1_000, true),
            // An epoch that is forgotten.
            (epoch(3, "a"), 40, true),
            (epoch(3, "a"), 41, false),
            // Epochs of another server that was primary at the same time.
            (epoch(7, "c"), 41, false),
            (epoch(8, "b"), 91, false),
            (epoch(9, "b"), 96, false),
        ] {
            assert_eq!(history.contains(&Position { epoch: at.clone(), number }), expected, "{at:?} {number}");
        }
    }

    #[test]
    fn what_a_script_says_is_read() {
        let text = |text: &str| Value::BulkString(text.into());
        let known = vec![Value::Int(7), text("b"), Value::Int(0)];
        let state = BucketState::parse(Value::Array(known.clone())).unwrap();
        assert_eq!(state, BucketState { epoch: epoch(7, "b"), number: None, history: None });
        let all = [known, vec![text("7"), text("90 b"), text("5"), text("0 a")]].concat();
        let history = BucketState::parse(Value::Array(all)).unwrap().history.unwrap();
        assert_eq!(history, History(vec![(epoch(5, "a"), 0), (epoch(7, "b"), 90)]));
    }
}
