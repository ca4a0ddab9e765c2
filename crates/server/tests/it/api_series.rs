//! Time series of calls, and the list of refused calls.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support_api::{ApiFixture, TEST_TIMEOUT, api_fixture};

fn sum(series: &Value, name: &str) -> u64 {
    series[name].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum()
}

/// The series, once it has this number of successful calls.
async fn series_with(api: &ApiFixture, query: &str, succeeded: u64) -> Value {
    let path = format!("/api/v1/series{query}");
    let read = async {
        loop {
            let series = api.get(&path).await.expect_status(200);
            if sum(&series, "succeeded") >= succeeded {
                return series;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    match tokio::time::timeout(TEST_TIMEOUT, read).await {
        Ok(series) => series,
        Err(_) => panic!("the calls are missing in {}", api.get(&path).await.text),
    }
}

#[tokio::test]
async fn calls_over_time_are_told_apart_by_how_they_ended() {
    let api = api_fixture().await;
    let call = async |tool: &str, arguments: Value, status: u16| {
        let path = format!("/api/v1/tools/{tool}/calls");
        api.post(&path, json!({"arguments": arguments})).await.expect_status(status);
    };
    // The first sample only notes what was before.
    series_with(&api, "", 0).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    call("add", json!({"a": 1, "b": 2}), 200).await;
    call("add", json!({"a": i64::MAX, "b": 2}), 200).await;
    call("add", json!({"a": 1}), 422).await;
    call("look", json!({}), 200).await;
    for window in ["15m", "6h", "24h"] {
        let series = series_with(&api, &format!("?window={window}"), 2).await;
        let ended = ["succeeded", "failed", "cancelled", "refused", "cacheHits"].map(|name| sum(&series, name));
        assert_eq!(ended, [2, 1, 0, 1, 0], "{series}");
        assert_eq!((&series["window"], &series["node"]), (&json!(window), &json!(api.hub.node_id())));
        let points = series["at"].as_array().unwrap().len();
        for name in ["succeeded", "p50Ms", "p95Ms", "p99Ms", "inFlight", "queued"] {
            assert_eq!(series[name].as_array().unwrap().len(), points, "{name}");
        }
        let at_calls = (0..points).find(|at| series["succeeded"][*at] != 0).unwrap();
        assert!(series["p95Ms"][at_calls].as_f64().unwrap() > 0.0, "{series}");
    }
    let series = series_with(&api, "?window=6h&tool=look", 1).await;
    assert_eq!((sum(&series, "succeeded"), sum(&series, "failed"), &series["stepMs"]), (1, 0, &json!(60_000)));
    let unused = api.get("/api/v1/series?tool=order").await.expect_status(200);
    assert_eq!(unused["at"], json!([]));
    api.get("/api/v1/series?tool=lok").await.expect_problem(404, "tool_not_found");
    api.get("/api/v1/series?window=1h").await.expect_problem(422, "invalid_request");
}

#[tokio::test]
async fn a_running_call_is_in_the_series() {
    let api = api_fixture().await;
    series_with(&api, "", 0).await;
    let running = api.hub.call("slow", json!({}));
    let mut running = std::pin::pin!(std::future::IntoFuture::into_future(running));
    let seen = async {
        loop {
            let series = api.get("/api/v1/series?tool=slow").await.expect_status(200);
            if series["inFlight"].as_array().unwrap().iter().any(|count| *count == 1) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        outcome = &mut running => panic!("{outcome:?}"),
        seen = tokio::time::timeout(TEST_TIMEOUT, seen) => seen.expect("the call appears in the series"),
    }
    api.release.add_permits(1);
    assert!(running.await.is_success());
}

#[tokio::test]
async fn refused_calls_are_listed_newest_first_with_the_reason() {
    let api = api_fixture().await;
    let call = async |tool: &str, body: Value| api.post(&format!("/api/v1/tools/{tool}/calls"), body).await.status;
    assert_eq!(call("add", json!({"arguments": {"a": 1}, "threadId": "t1"})).await, 422);
    assert_eq!(call("report", json!({"arguments": {}, "threadId": "t2"})).await, 409);
    assert_eq!(call("nowhere", json!({"arguments": {}})).await, 404);
    assert_eq!(call("broken", json!({"arguments": {}})).await, 200);
    for _ in 0..3 {
        call("rare", json!({"arguments": {}})).await;
    }
    let list = async |query: &str| api.get(&format!("/api/v1/refusals{query}")).await.expect_status(200);
    let codes = |list: &Value| -> Vec<String> {
        list["items"].as_array().unwrap().iter().map(|refusal| refusal["code"].as_str().unwrap().to_owned()).collect()
    };
    let all = list("").await;
    assert_eq!(codes(&all), ["rate_limited", "tool_not_found", "dependency_not_met", "arguments_invalid"]);
    let oldest = &all["items"][3];
    assert_eq!(
        (&oldest["tool"], &oldest["threadId"], &oldest["caller"]),
        (&json!("add"), &json!("t1"), &json!("local"))
    );
    assert!(oldest["text"].as_str().unwrap().contains("b: missing"), "{oldest}");
    assert!(oldest["at"].is_string() && oldest["callId"].is_string(), "{oldest}");
    for (query, expected) in [
        ("?tool=rare", vec!["rate_limited"]),
        ("?threadId=t2", vec!["dependency_not_met"]),
        ("?code=tool_not_found", vec!["tool_not_found"]),
        ("?caller=other", vec![]),
    ] {
        assert_eq!(codes(&list(query).await), expected, "{query}");
    }
    let first = list("?limit=3").await;
    let second = list(&format!("?limit=3&cursor={}", first["nextCursor"].as_str().unwrap())).await;
    assert_eq!(
        (codes(&first).len(), codes(&second), &second["nextCursor"]),
        (3, vec!["arguments_invalid".into()], &Value::Null)
    );
}
