//! Alerts over HTTP: targets, their deliveries, tests, metrics.

use std::time::Duration;

use serde_json::json;
use toolhub_core::{
    BoxFuture,
    alerts::{AlertChannel, AlertMessage, AlertResponse, AlertSendError, AlertTarget},
    clock::Timestamp,
};

use crate::support_api::{TEST_TIMEOUT, api_fixture, send};

/// A target that answers with this status.
struct Target(u16);

impl AlertChannel for Target {
    fn format(&self) -> &'static str {
        "json"
    }

    fn host(&self) -> String {
        "https://hooks.example".into()
    }

    fn fingerprint(&self) -> String {
        self.0.to_string()
    }

    fn send<'a>(&'a self, _: &'a AlertMessage, _: Timestamp) -> BoxFuture<'a, Result<AlertResponse, AlertSendError>> {
        let response = AlertResponse { status: self.0, first_line: "noted".into(), retry_after: None };
        Box::pin(std::future::ready(Ok(response)))
    }
}

#[tokio::test]
async fn targets_are_listed_tested_and_their_deliveries_shown() {
    let fixture = api_fixture().await;
    let get = async |path: &str| send(&fixture.router, "GET", path, None, &[]).await;
    let post = async |path: &str| send(&fixture.router, "POST", path, None, &[]).await;
    assert_eq!(get("/api/v1/alerts").await.expect_status(200)["items"], json!([]));
    let targets = [AlertTarget::new("ops", Target(204)), AlertTarget::new("old", Target(410))];
    fixture.hub.set_alert_targets(targets.into());
    let status = json!({"status": "maintenance", "reason": "key rotation"});
    send(&fixture.router, "PUT", "/api/v1/tools/add/status", Some(status.to_string()), &[]).await.expect_status(200);

    let deliveries = || get("/api/v1/alerts/ops/deliveries");
    let delivered = async {
        while deliveries().await.json()["items"][0]["state"] != "delivered" {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, delivered).await.expect("the message is delivered");
    let delivery = &deliveries().await.expect_status(200)["items"][0];
    assert_eq!((&delivery["message"]["condition"], &delivery["last"]["status"]), (&json!("tool.status"), &json!(204)));
    let targets = get("/api/v1/alerts").await.expect_status(200)["items"].clone();
    assert_eq!((&targets[0]["name"], &targets[1]["name"]), (&json!("old"), &json!("ops")));
    assert_eq!(targets[1]["alerts"][0]["thing"], "add");
    assert_eq!(targets[1]["host"], "https://hooks.example");

    let tested = post("/api/v1/alerts/ops/test").await.expect_status(200);
    assert_eq!((&tested["delivered"], &tested["answer"]), (&json!(true), &json!("noted")));
    assert_eq!(post("/api/v1/alerts/old/test").await.expect_status(200)["delivered"], false);
    assert_eq!(post("/api/v1/alerts/ops/retry").await.expect_status(200)["waiting"], 0);
    let problem = post("/api/v1/alerts/opss/test").await.expect_problem(404, "alert_target_not_found");
    assert_eq!(problem["suggestions"], json!(["ops"]));
    let metrics = get("/metrics").await.text;
    assert!(metrics.contains(r#"toolhub_alerts_firing{condition="tool.status"}"#), "{metrics}");
    assert!(metrics.contains(r#"toolhub_alert_deliveries_total{target="ops",result="delivered"} 1"#), "{metrics}");
}
