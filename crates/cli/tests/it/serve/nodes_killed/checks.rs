//! Compares what clients were told with what the nodes have stored and with the effects that happened.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    clients::{Answer, AnswerKind, Round},
    losses::{LossListener, REPORTED_WITHIN},
    nodes::Nodes,
};

/// The members of an outcome that its record must repeat.
const MEMBERS: [&str; 6] = ["tool", "threadId", "status", "effect", "output", "attempts"];

/// Checks one round after the other.
#[derive(Default)]
pub(super) struct Checker {
    /// Calls of all rounds that were closed as interrupted.
    pub(super) interrupted: usize,
    rounds: usize,
    calls: usize,
    answers: usize,
    /// Contradictions that a loss explains.
    lost: usize,
    compared: Compared,
    /// The round before, and the records it had.
    before: Option<(Round, Records)>,
}

/// The records of calls, by id.
type Records = BTreeMap<String, Value>;

/// Something that contradicts what a client was told.
#[derive(Debug)]
struct Contradiction {
    text: String,
    /// The partitions of the store whose loss explains it.
    partitions: Vec<String>,
}

/// How much there was to compare. A check of nothing would pass.
#[derive(Debug, Default)]
struct Compared {
    /// Outcomes that clients got.
    outcomes: usize,
    effects: usize,
    /// Successful calls by tool.
    succeeded: BTreeMap<String, usize>,
}

impl Compared {
    #[track_caller]
    fn add(&mut self, nodes: &Nodes, round: &Round, records: &Records) {
        let answers = round.answers();
        assert!(!answers.is_empty() && !records.is_empty(), "no call was made in the round");
        self.outcomes += answers.iter().filter(|answer| matches!(answer.kind, AnswerKind::Ended(_))).count();
        self.effects += nodes.ledger().iter().filter(|request| is_of_round(round, &request["call"])).count();
        for call in records.values().filter(|call| call["status"] == "success") {
            *self.succeeded.entry(call["tool"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
    }

    fn is_enough(&self) -> bool {
        let tools = ["counter", "quick", "slow"];
        self.outcomes > 0 && self.effects > 0 && tools.iter().all(|tool| self.succeeded.contains_key(*tool))
    }
}

fn is_of_round(round: &Round, call: &Value) -> bool {
    round.threads.iter().any(|thread| call["thread"] == **thread)
}

impl Checker {
    /// Checks a round that has ended, on a store that loses nothing.
    #[track_caller]
    pub(super) fn check(&mut self, nodes: &Nodes, round: Round) {
        self.check_with(nodes, round, &LossListener::default());
    }

    /// Checks a round that has ended; what is missing must have been reported as lost.
    #[track_caller]
    pub(super) fn check_with(&mut self, nodes: &Nodes, round: Round, losses: &LossListener) {
        let (records, found) = examine(nodes, &round);
        self.compared.add(nodes, &round, &records);
        self.lost += found.len();
        assert_explained(found, losses);
        if let Some((round, records)) = self.before.take() {
            // Nothing that a node did late has changed what was found.
            let (later, found) = examine(nodes, &round);
            assert_explained(found, losses);
            assert_eq!(later, records, "a call has another outcome than before");
        }
        self.interrupted += records.values().filter(|call| call["error"]["code"] == "interrupted").count();
        (self.rounds, self.calls) = (self.rounds + 1, self.calls + records.len());
        self.answers += round.answers().len();
        self.before = Some((round, records));
    }

    /// Prints how much was checked, which must not be nothing.
    #[track_caller]
    pub(super) fn report(&self, fault: &str) {
        let Self { interrupted, rounds, calls, answers, lost, compared, .. } = self;
        assert!(compared.is_enough(), "{fault}: {compared:?}");
        eprintln!(
            "{fault}: {rounds} rounds, {calls} calls, {interrupted} of them interrupted, {answers} answers, {lost} of lost writes"
        );
    }
}

/// Waits until the losses that explain all contradictions were reported.
#[track_caller]
fn assert_explained(mut found: Vec<Contradiction>, losses: &LossListener) {
    let started = Instant::now();
    loop {
        {
            let losses = losses.lock();
            found.retain(|it| {
                !losses.is_incomplete && !it.partitions.iter().any(|name| losses.partitions.contains(name))
            });
            let is_over = !losses.may_grow() || started.elapsed() > REPORTED_WITHIN;
            let texts: Vec<&String> = found.iter().map(|it| &it.text).collect();
            assert!(texts.is_empty() || !is_over, "{}; reported are {losses:#?}", json!(texts));
        }
        if found.is_empty() {
            return;
        }
        thread::park_timeout(Duration::from_millis(50));
    }
}

/// The records of the round, which must be the same on all nodes, and what contradicts the answers.
#[track_caller]
fn examine(nodes: &Nodes, round: &Round) -> (Records, Vec<Contradiction>) {
    let running: Vec<usize> = (0..nodes.len()).filter(|node| nodes.port(*node).is_some()).collect();
    let (mut records, mut found) = (Records::new(), Vec::new());
    for thread in &round.threads {
        let calls = nodes.calls(running[0], thread);
        for node in &running[1..] {
            assert_eq!(nodes.calls(*node, thread), calls, "nodes {} and {node} have different calls", running[0]);
        }
        for node in &running {
            found.extend(check_counter(nodes, *node, thread, &calls));
        }
        records.extend(calls);
    }
    for call in records.values() {
        let ended = ["success", "error", "cancelled"].contains(&call["status"].as_str().unwrap_or_default());
        assert!(ended, "an open call: {call:#}");
        let code = call["error"]["code"].as_str();
        let expected = [None, Some("interrupted"), Some("state_conflict"), Some("store_unavailable")];
        assert!(expected.contains(&code), "{call:#}");
    }
    let answers = round.answers();
    found.extend(answers.iter().filter_map(|answer| check_answer(answer, &records)));
    found.extend(check_keys(&answers));
    found.extend(check_effects(nodes, round, &answers, &records));
    (records, found)
}

/// The count of a thread is that of its successful calls, each of which returned another number.
fn check_counter(nodes: &Nodes, node: usize, thread: &str, calls: &Records) -> Option<Contradiction> {
    let succeeded = calls.values().filter(|call| call["tool"] == "counter" && call["status"] == "success");
    let mut returned: Vec<u64> = succeeded.map(|call| call["output"].as_u64().expect("a count")).collect();
    returned.sort_unstable();
    let state = nodes.get(node, &format!("/api/v1/state/contexts/{thread}%2Fcounter/business"));
    let count = state.map_or(0, |state| state["data"].as_u64().unwrap_or_else(|| panic!("not a count: {state}")));
    let is_right = returned.iter().copied().eq(1..=count);
    (!is_right).then(|| Contradiction {
        text: format!("{thread} counts to {count} on node {node}, and its calls returned {returned:?}"),
        partitions: vec![format!("main/t/{thread}")],
    })
}

/// An acknowledged call has its record, with the outcome that the client got.
fn check_answer(answer: &Answer, records: &Records) -> Option<Contradiction> {
    let record = records.get(&answer.call);
    let is_right = match (&answer.kind, record) {
        (AnswerKind::Ended(outcome), Some(record)) => {
            let is_same = |member: &str| outcome[member] == record[member];
            MEMBERS.into_iter().all(is_same) && outcome["error"]["code"] == record["error"]["code"]
        }
        (AnswerKind::Accepted, record) => record.is_some(),
        (AnswerKind::Ended(_), None) => false,
        // A call whose opening was not answered is closed later, as one that never ran.
        (AnswerKind::Refused, record) => record.is_none_or(|record| record["effect"] != "done"),
    };
    (!is_right).then(|| Contradiction {
        text: format!("the client got {answer:#?}; the record is {}", json!(record)),
        partitions: partitions(answer),
    })
}

fn partitions(answer: &Answer) -> Vec<String> {
    let of_key = answer.key.iter().map(|key| format!("main/k/{}/{key}", answer.tool));
    of_key.chain([format!("main/t/{}", answer.thread)]).collect()
}

/// All clients that used a key got the same outcome.
fn check_keys(answers: &[Answer]) -> Vec<Contradiction> {
    let mut first = BTreeMap::new();
    let mut found = Vec::new();
    for answer in answers.iter().filter(|answer| !matches!(answer.kind, AnswerKind::Refused)) {
        let Some(key) = &answer.key else { continue };
        let other: &mut &Answer = first.entry((answer.tool, key)).or_insert(answer);
        if other.call != answer.call {
            let text = format!("one key, two calls: {other:#?} {answer:#?}");
            found.push(Contradiction { text, partitions: partitions(answer) });
        }
    }
    found
}

/// No effect happened twice under one key or for one call; each one belongs to a call that says so; each success has one.
fn check_effects(nodes: &Nodes, round: &Round, answers: &[Answer], records: &Records) -> Vec<Contradiction> {
    let (mut by_key, mut by_call) = (BTreeMap::<String, usize>::new(), BTreeMap::<String, usize>::new());
    let mut found = Vec::new();
    let of_call = |call: &Value| {
        let thread = format!("main/t/{}", call["thread"].as_str().expect("a thread"));
        let key = call["idempotencyKey"].as_str();
        key.into_iter()
            .flat_map(|key| ["quick", "slow"].map(|tool| format!("main/k/{tool}/{key}")))
            .chain([thread])
            .collect()
    };
    let refused: BTreeSet<&String> =
        answers.iter().filter(|answer| matches!(answer.kind, AnswerKind::Refused)).map(|answer| &answer.call).collect();
    for request in nodes.ledger() {
        let call = &request["call"];
        if !is_of_round(round, call) {
            continue;
        }
        let id = call["id"].as_str().expect("a request names its call").to_owned();
        let mut add = |text: String| found.push(Contradiction { text, partitions: of_call(call) });
        if let Some(key) = call["idempotencyKey"].as_str() {
            let times = by_key.entry(key.to_owned()).or_default();
            *times += 1;
            if *times > 1 {
                add(format!("an effect happened {times} times under the key {key}"));
            }
        }
        let times = by_call.entry(id.clone()).or_default();
        *times += 1;
        if *times > 1 {
            add(format!("an effect of the call {id} happened {times} times"));
        }
        match records.get(&id) {
            None => add(format!("the call {id} had an effect and has no record")),
            Some(record) if record["effect"] == "none" => add(format!("an effect that is denied: {record:#}")),
            Some(_) => {}
        }
        if refused.contains(&id) {
            add(format!("the refused call {id} had an effect"));
        }
    }
    for (id, record) in records {
        let has_ledger = record["tool"] != "counter" && record["status"] == "success";
        if has_ledger && !by_call.contains_key(id) {
            let partitions = vec![format!("main/t/{}", record["threadId"].as_str().unwrap_or_default())];
            found.push(Contradiction { text: format!("no effect of the successful call {record:#}"), partitions });
        }
    }
    found
}
