//! Time series of the calls on this node.

use axum::{extract::State, http::Method};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhub_core::{ErrorKind, clock::Timestamp};

use super::stats::find_tool;
use crate::{
    app::App,
    extract::Query,
    json::Json,
    problem::ApiResult,
    route::Route,
    scope::{Access, Scope},
    series::{Point, Window},
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/v1/series", Access::Needs(Scope::ToolsRead), "tools", series)
            .summary("Calls on this node over time, of all tools or of one")
            .json_response::<SeriesView>(200, "A number per point in time for each kind of figure")
            .refusals(&[ErrorKind::ToolNotFound]),
    ]
}

/// Which series.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SeriesQuery {
    /// How far back: a point per second for `15m`, per 10 seconds for `6h`, per minute for `24h`. Of one tool: always per minute.
    #[serde(default)]
    window: WindowParam,
    /// Only calls of this tool. There are series of the 200 tools that were called last.
    tool: Option<String>,
}

/// A time window.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
enum WindowParam {
    #[default]
    #[serde(rename = "15m")]
    Minutes15,
    #[serde(rename = "6h")]
    Hours6,
    #[serde(rename = "24h")]
    Day,
}

/// Calls on one node over time. Each list has a number for each point of `at`.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "CallSeries")]
struct SeriesView {
    /// The node whose calls these are.
    node: String,
    /// How far back the series goes at most. The numbers are lost when the server stops.
    window: WindowParam,
    /// The time of one point, in milliseconds.
    step_ms: u64,
    /// The time of this answer. The last point may not be over yet.
    now: Timestamp,
    /// Begin of each point, in milliseconds since 1970. A point at which the server did not run, or of one tool without calls, is missing.
    at: Vec<i64>,
    /// Calls that succeeded.
    succeeded: Vec<u32>,
    /// Calls that failed.
    failed: Vec<u32>,
    /// Calls that were cancelled.
    cancelled: Vec<u32>,
    /// Calls that were refused before they reached a tool.
    refused: Vec<u32>,
    /// Calls that were answered from the result cache; they count as successful, too.
    cache_hits: Vec<u32>,
    /// Median of how long the ended calls took, in milliseconds; null without such calls.
    p50_ms: Vec<Option<f32>>,
    /// 95 of 100 calls took no longer.
    p95_ms: Vec<Option<f32>>,
    /// 99 of 100 calls took no longer.
    p99_ms: Vec<Option<f32>>,
    /// The largest number of calls that ran at the same time, as seen once per second.
    in_flight: Vec<u32>,
    /// The largest number of calls that waited for a slot.
    queued: Vec<u32>,
}

async fn series(State(app): State<App>, Query(query): Query<SeriesQuery>) -> ApiResult<Json<SeriesView>> {
    let window = match query.window {
        WindowParam::Minutes15 => Window::Minutes15,
        WindowParam::Hours6 => Window::Hours6,
        WindowParam::Day => Window::Day,
    };
    let now = app.now();
    let (step, points) = match &query.tool {
        None => app.series().of_hub(window, now),
        Some(tool) => app.series().of_tool(&find_tool(&app, tool)?.definition.name, window, now),
    };
    let step_ms = u64::try_from(step.as_millis()).unwrap_or(u64::MAX);
    let mut view = SeriesView {
        node: app.hub().node_id().to_string(),
        window: query.window,
        step_ms,
        now,
        ..SeriesView::default()
    };
    for point in &points {
        view.push(point, point.at(step));
    }
    Ok(Json(view))
}

impl SeriesView {
    fn push(&mut self, point: &Point, at: Timestamp) {
        let duration = |millis: f32| (point.ended() > 0).then_some((millis * 1e3).round() / 1e3);
        self.at.push(at.millis());
        self.succeeded.push(point.succeeded);
        self.failed.push(point.failed);
        self.cancelled.push(point.cancelled);
        self.refused.push(point.refused);
        self.cache_hits.push(point.cache_hits);
        self.p50_ms.push(duration(point.p50));
        self.p95_ms.push(duration(point.p95));
        self.p99_ms.push(duration(point.p99));
        self.in_flight.push(point.in_flight);
        self.queued.push(point.queued);
    }
}
