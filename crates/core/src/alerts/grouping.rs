//! Decides which due alerts become one message.
//!
//! In: the due alerts of one target, and what was sent within the last minute. Out: groups that are sent now. Alerts wait two seconds for
//! others of the same cause. The tools of one server are one group. More than 20 messages of a kind within a minute become one.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use smol_str::SmolStr;

use super::{AlertPhase, Condition, record::Due};
use toolhub_types::timestamp::Timestamp;

/// How long an alert waits for others of the same cause.
const GATHERING: Duration = Duration::from_secs(2);
/// The time in which at most [`MAX_SINGLE`] messages of a kind are sent one by one.
const WINDOW: Duration = Duration::from_secs(60);
const MAX_SINGLE: usize = 20;
/// Number of alerts in one message.
const MAX_ALERTS: usize = 500;

/// The kind of a message: what alerts of different kinds have in common is no message.
type MessageKind = (Condition, AlertPhase);

/// An alert that is due.
pub(crate) struct DueAlert<K> {
    pub(crate) key: K,
    pub(crate) condition: Condition,
    pub(crate) due: Due,
    pub(crate) server: Option<SmolStr>,
}

/// What was sent to a target lately, by kind.
#[derive(Debug, Default)]
pub(crate) struct SentLately(HashMap<MessageKind, SentInWindow>);

#[derive(Debug)]
struct SentInWindow {
    began: Timestamp,
    messages: usize,
}

/// The groups to send now.
pub(crate) fn group<K>(due: Vec<DueAlert<K>>, sent: &mut SentLately, now: Timestamp) -> Vec<(MessageKind, Vec<K>)> {
    let mut kinds: BTreeMap<MessageKind, Vec<DueAlert<K>>> = BTreeMap::new();
    for alert in due.into_iter().filter(|alert| alert.due.at <= now) {
        kinds.entry((alert.condition, alert.due.phase)).or_default().push(alert);
    }
    sent.0.retain(|_, window| window.began + WINDOW > now);
    let mut groups = Vec::new();
    for (kind, mut alerts) in kinds {
        let first = alerts.iter().map(|alert| alert.due.at).min().unwrap_or(now);
        if now < first + GATHERING {
            continue;
        }
        alerts.sort_by_key(|alert| alert.due.at);
        let mut by_server: BTreeMap<SmolStr, Vec<K>> = BTreeMap::new();
        let mut single = Vec::new();
        for alert in alerts {
            match alert.server {
                Some(server) => by_server.entry(server).or_default().push(alert.key),
                None => single.push(alert.key),
            }
        }
        let window = sent.0.entry(kind).or_insert(SentInWindow { began: now, messages: 0 });
        let messages = by_server.len() + single.len();
        if window.messages + messages <= MAX_SINGLE {
            window.messages += messages;
            groups.extend(single.into_iter().map(|key| (kind, vec![key])));
            groups.extend(by_server.into_values().flat_map(split).map(|keys| (kind, keys)));
        } else if window.messages == 0 {
            // The rest of the window is one more message.
            window.messages = MAX_SINGLE + 1;
            let all = by_server.into_values().flatten().chain(single).collect();
            groups.extend(split(all).into_iter().map(|keys| (kind, keys)));
        }
    }
    groups
}

fn split<K>(mut keys: Vec<K>) -> Vec<Vec<K>> {
    let mut parts = Vec::new();
    while keys.len() > MAX_ALERTS {
        let rest = keys.split_off(MAX_ALERTS);
        parts.push(std::mem::replace(&mut keys, rest));
    }
    parts.push(keys);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: MessageKind = (Condition::ToolStatus, AlertPhase::Firing);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn due(key: usize, seconds: i64, server: Option<&str>) -> DueAlert<usize> {
        let due = Due { at: at(seconds), phase: KIND.1 };
        DueAlert { key, condition: KIND.0, due, server: server.map(SmolStr::new) }
    }

    #[track_caller]
    fn check(alerts: Vec<DueAlert<usize>>, sent: &mut SentLately, now: i64, sizes: &[usize]) {
        let groups = group(alerts, sent, at(now));
        assert_eq!(groups.iter().map(|(_, keys)| keys.len()).collect::<Vec<_>>(), sizes);
    }

    #[test]
    fn an_alert_waits_a_moment_for_others_and_is_then_a_message_of_its_own() {
        let sent = &mut SentLately::default();
        check(vec![due(1, 0, None)], sent, 1, &[]);
        check(vec![due(1, 0, None), due(2, 1, None), due(3, 9, None)], sent, 2, &[1, 1]);
    }

    #[test]
    fn the_tools_of_a_server_are_one_message() {
        let tools = || (0..80).map(|key| due(key, 0, Some("pg")));
        check(tools().collect(), &mut SentLately::default(), 2, &[80]);
        check(tools().chain([due(99, 0, None)]).collect(), &mut SentLately::default(), 2, &[1, 80]);
    }

    #[test]
    fn more_than_twenty_of_a_kind_in_a_minute_are_one_message() {
        let sent = &mut SentLately::default();
        check((0..21).map(|key| due(key, 0, None)).collect(), sent, 2, &[21]);
        check((0..5).map(|key| due(key, 10, None)).collect(), sent, 30, &[]);
        check((0..5).map(|key| due(key, 10, None)).collect(), sent, 62, &[1; 5]);
        let sent = &mut SentLately::default();
        check((0..20).map(|key| due(key, 0, None)).collect(), sent, 2, &[1; 20]);
        let late = || (0..30).map(|key| due(key, 10, None)).collect::<Vec<_>>();
        check(late(), sent, 20, &[]);
        check(late(), sent, 62, &[30]);
    }

    #[test]
    fn a_message_has_a_bounded_size() {
        check((0..1001).map(|key| due(key, 0, None)).collect(), &mut SentLately::default(), 2, &[500, 500, 1]);
    }
}
