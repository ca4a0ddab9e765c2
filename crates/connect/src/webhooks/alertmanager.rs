//! The body of a message for the API of a Prometheus Alertmanager.
//!
//! In: a message. Out: a list of alerts. The labels of an alert stay the same from its begin to its end, because the Alertmanager
//! recognizes it by them; what changes is in the annotations.

use std::time::Duration;

use serde_json::{Map, Value, json};
use toolhub_core::alerts::{Alert, AlertMessage, AlertPhase};

/// For how long something without an end is shown.
const SHOWN: Duration = Duration::from_secs(600);

/// The body of a message. A test message is an alert that ends soon.
pub(super) fn body(message: &AlertMessage) -> Value {
    if message.alerts.is_empty() {
        let (labels, annotations) = (json!({"alertname": "toolhub.test"}), json!({"summary": message.summary()}));
        let ends_at = message.at + Duration::from_secs(60);
        return json!([{"labels": labels, "annotations": annotations, "startsAt": message.at, "endsAt": ends_at}]);
    }
    message.alerts.iter().map(|alert| entry(message, alert)).collect()
}

fn entry(message: &AlertMessage, alert: &Alert) -> Value {
    let condition = message.condition.map_or("", |condition| condition.as_str());
    let mut labels = Map::new();
    labels.insert("alertname".into(), format!("toolhub.{condition}").into());
    labels.insert("thing".into(), alert.thing.as_str().into());
    let optional = [
        ("tool", alert.tool.as_ref().map(ToString::to_string)),
        ("server", alert.server.as_ref().map(ToString::to_string)),
        ("tenant", alert.tenant.as_ref().map(ToString::to_string)),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            labels.insert(name.into(), value.into());
        }
    }
    let ends_at = match message.phase {
        AlertPhase::Happened => Some(message.at + SHOWN),
        _ if !alert.is_active => Some(alert.since),
        _ => message.valid_until,
    };
    let mut entry = json!({
        "labels": labels,
        "annotations": {
            "summary": message.summary(),
            "description": message.advice(),
            "state": alert.state,
            "reason": alert.reason,
            "alert_id": alert.id,
        },
        "startsAt": alert.began,
    });
    if let Some(ends_at) = ends_at {
        entry["endsAt"] = json!(ends_at);
    }
    if let Some(link) = &alert.link {
        entry["generatorURL"] = link.as_str().into();
    }
    entry
}
