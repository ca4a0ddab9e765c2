//! The HTTP service behind the demo's `weather` tool, with fault injection.
//!
//! In: requests. Out: weather that is constant per city; or the fault set by `/fault`: a status, a delay, for a number of requests.

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

/// The fault to inject.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default)]
struct InjectedFault {
    /// Status of responses; `None` for successful ones.
    status: Option<u16>,
    /// Delay of responses in milliseconds.
    delay: u64,
    /// For how many requests; `None` until it is changed.
    times: Option<u32>,
}

type SharedFault = Arc<Mutex<InjectedFault>>;

#[derive(Debug, Deserialize)]
struct WeatherQuery {
    city: String,
    #[serde(default)]
    units: String,
}

/// A running service; stops when dropped.
pub(super) struct Upstream {
    pub(super) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Upstream {
    /// Listens on a free loopback port.
    ///
    /// # Errors
    /// When it cannot listen.
    pub(super) async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let router = Router::new()
            .route("/v1/current", get(current))
            .route("/health", get(health))
            .route("/fault", post(set_fault))
            .with_state(SharedFault::default());
        // Not supervised: axum serves each connection on a task of its own, so a panic of a handler does not end this loop.
        let task = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, task })
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn current(State(shared): State<SharedFault>, Query(query): Query<WeatherQuery>) -> Response {
    let fault = next_fault(&shared);
    tokio::time::sleep(Duration::from_millis(fault.delay)).await;
    if let Some(response) = fault_response(fault) {
        return response;
    }
    // The same city always has the same weather.
    let letters: u32 = query.city.to_lowercase().chars().map(u32::from).sum();
    let celsius = f64::from(letters % 35) - 5.0;
    let sky = ["clear", "cloudy", "rain", "wind"][letters as usize % 4];
    let imperial = query.units == "imperial";
    let (temperature, unit) = if imperial { (celsius * 9.0 / 5.0 + 32.0, "°F") } else { (celsius, "°C") };
    let body = json!({ "city": query.city, "temperature": temperature, "unit": unit, "sky": sky });
    Json(json!({ "current": body })).into_response()
}

async fn health(State(shared): State<SharedFault>) -> Response {
    let fault = *shared.lock().unwrap_or_else(PoisonError::into_inner);
    fault_response(fault).unwrap_or_else(|| StatusCode::NO_CONTENT.into_response())
}

/// `curl -X POST '…/fault?status=503&delay=200&times=3'`; without parameters, it clears the fault.
async fn set_fault(State(shared): State<SharedFault>, Query(fault): Query<InjectedFault>) -> Json<InjectedFault> {
    *shared.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    Json(fault)
}

/// The fault for this request.
fn next_fault(shared: &SharedFault) -> InjectedFault {
    let mut fault = shared.lock().unwrap_or_else(PoisonError::into_inner);
    match &mut fault.times {
        Some(0) => InjectedFault::default(),
        Some(times) => {
            *times -= 1;
            let current = *fault;
            if current.times == Some(0) {
                *fault = InjectedFault::default();
            }
            current
        }
        None => *fault,
    }
}

fn fault_response(fault: InjectedFault) -> Option<Response> {
    let status = StatusCode::from_u16(fault.status?).ok()?;
    Some((status, Json(json!({ "error": "injected fault" }))).into_response())
}
