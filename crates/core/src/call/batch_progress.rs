//! `BatchProgress`: how far the calls of a batch are that runs without its caller.
//!
//! In: updates by the task of the batch. Out: the receipts of its calls, and the wait for them.

use tokio::sync::watch;

use super::CallReceipt;
use toolhub_types::outcome::Outcome;

/// The writing side, held by the task of the batch.
pub(crate) struct BatchProgress(watch::Sender<Vec<CallStage>>);

/// The reading side.
pub(crate) type BatchStages = watch::Receiver<Vec<CallStage>>;

/// How far one call is.
#[allow(clippy::large_enum_variant, reason = "the large variant is the one that all calls end in")]
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CallStage {
    /// The batch has not started.
    New,
    /// It waits for its turn; the journal does not have it.
    Held,
    /// It was started, and the journal does not have it yet.
    Started,
    /// It is in the journal, or has ended.
    Known(CallReceipt),
}

impl BatchProgress {
    /// The progress of so many calls.
    pub(crate) fn new(calls: usize) -> (Self, BatchStages) {
        let (sender, receiver) = watch::channel(vec![CallStage::New; calls]);
        (Self(sender), receiver)
    }

    /// These calls were started; those that were not have to wait.
    pub(crate) fn mark_started(&self, started: &[usize]) {
        self.0.send_modify(|stages| {
            for (index, stage) in stages.iter_mut().enumerate() {
                match stage {
                    _ if started.contains(&index) && !matches!(stage, CallStage::Known(_)) => {
                        *stage = CallStage::Started;
                    }
                    CallStage::New => *stage = CallStage::Held,
                    _ => {}
                }
            }
        });
    }

    /// A call is in the journal, or has ended.
    pub(crate) fn set(&self, index: usize, receipt: CallReceipt) {
        self.0.send_modify(|stages| stages[index] = CallStage::Known(receipt));
    }
}

/// Waits until every call has ended, is in the journal, or waits for its turn; `None` for one that waits. If the task of
/// the batch is gone, returns what is known.
pub(crate) async fn receipts(stages: &mut BatchStages) -> Vec<Option<CallReceipt>> {
    let is_settled =
        |stages: &Vec<CallStage>| !stages.iter().any(|stage| matches!(stage, CallStage::New | CallStage::Started));
    let _ = stages.wait_for(is_settled).await;
    let receipt = |stage: &CallStage| if let CallStage::Known(receipt) = stage { Some(receipt.clone()) } else { None };
    stages.borrow().iter().map(receipt).collect()
}

/// Waits for the outcomes of all calls. If the task of the batch is gone, returns those that are known.
pub(crate) async fn outcomes(stages: &mut BatchStages) -> Vec<Outcome> {
    let has_ended = |stage: &CallStage| matches!(stage, CallStage::Known(CallReceipt::Ended(_)));
    let _ = stages.wait_for(|stages| stages.iter().all(has_ended)).await;
    let outcome = |stage: &CallStage| match stage {
        CallStage::Known(CallReceipt::Ended(outcome)) => Some(outcome.clone()),
        _ => None,
    };
    stages.borrow().iter().filter_map(outcome).collect()
}
