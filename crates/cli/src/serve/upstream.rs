//! The service that the demo's `weather` asks: on this machine, and as troublesome as somebody wants it to be.
//!
//! In: requests. Out: weather that is always the same for a city; or what `/trouble` was told: a status, a delay, for so many
//! requests.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::{net::TcpListener, task::JoinHandle};

/// What is to go wrong.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default)]
struct InjectedFault {
    /// The status of answers; none for good ones.
    status: Option<u16>,
    /// How long an answer takes, in milliseconds.
    delay: u64,
    /// For how many requests; none: until it is told otherwise.
    times: Option<u32>,
}

type SharedFault = Arc<Mutex<InjectedFault>>;

#[derive(Debug, Deserialize)]
struct WeatherQuery {
    city: String,
    #[serde(default)]
    units: String,
}

/// A service that runs until it is dropped.
pub(super) struct Upstream {
    pub(super) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Upstream {
    /// Listens on a free port of this machine.
    ///
    /// # Errors
    /// When there is none.
    pub(super) async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let router = Router::new()
            .route("/v1/current", get(current))
            .route("/health", get(health))
            .route("/trouble", post(set_fault))
            .with_state(SharedFault::default());
        let running = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, task: running })
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn current(State(shared): State<SharedFault>, Query(asked): Query<WeatherQuery>) -> Response {
    let trouble = next_fault(&shared);
    tokio::time::sleep(Duration::from_millis(trouble.delay)).await;
    if let Some(refused) = fault_response(trouble) {
        return refused;
    }
    // The same city has the same weather, whoever asks.
    let letters: u32 = asked.city.to_lowercase().chars().map(u32::from).sum();
    let celsius = f64::from(letters % 35) - 5.0;
    let sky = ["clear", "cloudy", "rain", "wind"][letters as usize % 4];
    let imperial = asked.units == "imperial";
    let (temperature, unit) = if imperial { (celsius * 9.0 / 5.0 + 32.0, "°F") } else { (celsius, "°C") };
    let body = json!({ "city": asked.city, "temperature": temperature, "unit": unit, "sky": sky });
    Json(json!({ "current": body })).into_response()
}

async fn health(State(shared): State<SharedFault>) -> Response {
    let trouble = *shared.lock().unwrap_or_else(PoisonError::into_inner);
    fault_response(trouble).unwrap_or_else(|| StatusCode::NO_CONTENT.into_response())
}

/// `curl -X POST '…/trouble?status=503&delay=200&times=3'`; without anything, all is well again.
async fn set_fault(State(shared): State<SharedFault>, Query(told): Query<InjectedFault>) -> Json<InjectedFault> {
    *shared.lock().unwrap_or_else(PoisonError::into_inner) = told;
    Json(told)
}

/// What is to go wrong with this request.
fn next_fault(shared: &SharedFault) -> InjectedFault {
    let mut told = shared.lock().unwrap_or_else(PoisonError::into_inner);
    match &mut told.times {
        Some(0) => InjectedFault::default(),
        Some(times) => {
            *times -= 1;
            let now = *told;
            if now.times == Some(0) {
                *told = InjectedFault::default();
            }
            now
        }
        None => *told,
    }
}

fn fault_response(trouble: InjectedFault) -> Option<Response> {
    let status = StatusCode::from_u16(trouble.status?).ok()?;
    Some((status, Json(json!({ "error": "the demo was told to fail" }))).into_response())
}
