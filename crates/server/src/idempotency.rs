//! Middleware that replays the stored response to a request repeated with its `Idempotency-Key`.
//!
//! In: requests to a route that does not handle the key itself. Out: the response of the route; for a repetition, the
//! stored response of the first request. The key is claimed by a row before the handler runs, and the response replaces
//! the claim. Only successes are stored: a refused request had no effect and may be retried. Calls, batches and
//! messages have their own keys, which the core handles.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes, to_bytes},
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use futures_util::FutureExt;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use toolhub_core::{
    CallError, ErrorKind,
    backend::{
        self, Batch, Change, Durability, Expect, Partition, PartitionKind, RowVersion, StoreError, Table, Write,
    },
    digest,
};

use crate::{
    app::App,
    body_error,
    extract::{FromParts, IdempotencyHeader},
    problem::{ApiResult, Code, Problem},
    scope::Principal,
};

const SCHEMA_VERSION: u32 = 1;
/// How long a response is stored.
const RESPONSE_TTL: Duration = Duration::from_secs(24 * 3600);
/// How long a claim lasts if the process died before it could store a response.
const CLAIM_TTL: Duration = Duration::from_secs(60);
/// Larger responses are not stored.
const MAX_STORED_BYTES: usize = 1 << 20;
/// A key's partition holds one row.
const CLAIM_ROW_ID: SmolStr = SmolStr::new_static("request");
/// The response headers that are stored and replayed.
const STORED_HEADERS: [HeaderName; 3] = [header::CONTENT_TYPE, header::ETAG, header::LOCATION];
/// The request headers that are part of the request's identity.
const CONDITION_HEADERS: [HeaderName; 2] = [header::IF_MATCH, header::IF_NONE_MATCH];

/// The row stored for a key.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Claim {
    /// Digest of the request that claimed the key.
    request: String,
    /// The response; `None` while the request is in progress.
    answer: Option<StoredResponse>,
}

/// A response as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredResponse {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

/// Replays stored responses for one route.
pub(crate) struct Idempotency {
    app: App,
    route: SmolStr,
}

/// The result of an attempt to claim a key.
enum ClaimResult {
    /// This request owns the key.
    Acquired(RowVersion),
    /// The same request claimed it before, and this was its response.
    Replay(StoredResponse),
}

impl Idempotency {
    /// The middleware of the route with this path.
    pub(crate) fn new(app: &App, path: &'static str) -> Self {
        // Only the last part of a partition's text may contain a `/`.
        Self { app: app.clone(), route: path.replace('/', ".").into() }
    }

    /// Answers a request with the response of `next`, or with the stored response to the same request.
    pub(crate) async fn serve<F>(
        self: Arc<Self>,
        request: Request,
        next: impl FnOnce(Request) -> F + Send + 'static,
    ) -> Response
    where
        F: Future<Output = Response> + Send,
    {
        self.respond(request, next).await.unwrap_or_else(Problem::into_response)
    }

    async fn respond<F>(
        self: Arc<Self>,
        request: Request,
        next: impl FnOnce(Request) -> F + Send + 'static,
    ) -> ApiResult<Response>
    where
        F: Future<Output = Response> + Send,
    {
        let (mut parts, body) = request.into_parts();
        let IdempotencyHeader(key) = IdempotencyHeader::from_parts(&mut parts, &self.app)?;
        let (Some(key), Some(principal)) = (key, parts.extensions.get::<Principal>()) else {
            return Ok(next(Request::from_parts(parts, body)).await);
        };
        let kind = PartitionKind::Request(self.route.clone(), key);
        let partition = Partition { tenant: principal.tenant.clone(), kind };
        let limit = self.app.settings().limits.body;
        let body = to_bytes(body, limit).await.map_err(|error| body_error::problem(&error, limit))?;
        let claim = Claim { request: request_digest(&parts, principal, &body), answer: None };
        let version = match self.claim(&partition, &claim).await? {
            ClaimResult::Acquired(version) => version,
            ClaimResult::Replay(answer) => return answer.into_replay(),
        };
        // The task outlives the client: one that disconnects and retries finds the response.
        let work = tokio::spawn(async move {
            let answer = AssertUnwindSafe(next(Request::from_parts(parts, Body::from(body)))).catch_unwind().await;
            let response = answer.unwrap_or_else(|_| internal_error().into_response());
            self.complete(&partition, claim, version, response).await
        });
        work.await.map_err(|_| internal_error())
    }

    /// Claims the key of this partition, or loads what is stored for it.
    async fn claim(&self, partition: &Partition, claim: &Claim) -> ApiResult<ClaimResult> {
        let key = backend::RowKey { partition: partition.clone(), table: Table::Claims, id: CLAIM_ROW_ID };
        if let Some(row) = self.app.store().load(&[key], self.app.now()).await?.pop().flatten() {
            let known: Claim = serde_json::from_slice(&row.value).map_err(|error| {
                tracing::error!(%partition, %error, "idempotency record is unreadable");
                Problem::new(Code::INTERNAL, "the record stored for this key is unreadable").hint("use another key")
            })?;
            let problem = |kind, why: &str| Problem::from(CallError::new(kind).operator(why));
            return match known.answer {
                _ if known.request != claim.request => {
                    Err(problem(ErrorKind::IdempotencyKeyReused, "the key was used for another request"))
                }
                Some(answer) => Ok(ClaimResult::Replay(answer)),
                None => Err(in_progress()),
            };
        }
        let claimed = self.write_claim(partition, Expect::Absent, Some((claim, CLAIM_TTL)), Durability::KillSafe).await;
        match claimed {
            // A concurrent request claimed the key first.
            Err(StoreError::Conflict { .. }) => Err(in_progress()),
            claimed => Ok(ClaimResult::Acquired(claimed?)),
        }
    }

    /// Stores the response, or removes the claim if the request had no effect.
    async fn complete(
        &self,
        partition: &Partition,
        mut claim: Claim,
        version: RowVersion,
        response: Response,
    ) -> Response {
        let (parts, body) = response.into_parts();
        // Responses of these routes are complete in memory; none of them streams.
        let bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
        claim.answer = StoredResponse::from_response(parts.status, &parts.headers, &bytes);
        let value = claim.answer.is_some().then_some((&claim, RESPONSE_TTL));
        if let Err(error) = self.write_claim(partition, Expect::Same(version), value, Durability::PowerSafe).await {
            tracing::warn!(
                %partition,
                %error,
                "could not store the response for its idempotency key; a retry may run the request again"
            );
        }
        Response::from_parts(parts, Body::from(bytes))
    }

    /// Writes a claim with a TTL, or removes it.
    async fn write_claim(
        &self,
        partition: &Partition,
        expect: Expect,
        claim: Option<(&Claim, Duration)>,
        durability: Durability,
    ) -> Result<RowVersion, StoreError> {
        let now = self.app.now();
        let change = match claim {
            None => Change::Remove,
            Some((claim, ttl)) => {
                let value = serde_json::to_vec(claim).map_err(|error| StoreError::Refused(error.to_string()))?;
                Change::Put { value: value.into(), schema: SCHEMA_VERSION, expires: Some(now + ttl) }
            }
        };
        let write = Write { table: Table::Claims, id: CLAIM_ROW_ID, expect, change, durability };
        let batch = Batch::new(partition.clone()).with(write);
        let stamp = batch.stamp;
        let versions = self.app.store().commit(batch, now).await?;
        Ok(RowVersion { number: versions.first().copied().unwrap_or_default(), stamp })
    }
}

impl StoredResponse {
    /// The part of a response that is stored; `None` for a response that is not.
    fn from_response(status: StatusCode, headers: &HeaderMap, body: &Bytes) -> Option<Self> {
        let body = str::from_utf8(body).ok().filter(|text| status.is_success() && text.len() <= MAX_STORED_BYTES)?;
        let header = |name: &HeaderName| Some((name.to_string(), headers.get(name)?.to_str().ok()?.to_owned()));
        Some(Self {
            status: status.as_u16(),
            headers: STORED_HEADERS.iter().filter_map(header).collect(),
            body: body.into(),
        })
    }

    /// Turns it into a response again, marked as replayed.
    fn into_replay(self) -> ApiResult<Response> {
        let mut response = Response::new(Body::from(self.body));
        let unreadable = |_| Problem::new(Code::INTERNAL, "the record stored for this key is unreadable");
        *response.status_mut() = StatusCode::from_u16(self.status).map_err(unreadable)?;
        for (name, value) in self.headers {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                response.headers_mut().insert(name, value);
            }
        }
        response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
        Ok(response)
    }
}

fn in_progress() -> Problem {
    let why = "the first request with this key is still in progress";
    CallError::new(ErrorKind::IdempotencyInProgress).operator(why).into()
}

fn internal_error() -> Problem {
    Problem::new(Code::INTERNAL, "internal error: the request handler panicked")
}

/// Digest of what a repetition must have in common: caller, target, conditions and body.
fn request_digest(parts: &Parts, principal: &Principal, body: &Bytes) -> String {
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    let conditions = CONDITION_HEADERS.map(|name| parts.headers.get(name).map_or(&[][..], HeaderValue::as_bytes));
    let caller = principal.caller.as_str().as_bytes();
    digest::sha256_hex([caller, target.as_bytes()].into_iter().chain(conditions).chain([&body[..]]))
}
