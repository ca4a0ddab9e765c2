//! One effect and one answer for a request that is repeated with its `Idempotency-Key`.
//!
//! In: requests to a route that does not look at the key itself. Out: the answer of the route; to a repetition the answer that
//! the first was given. A key is claimed with a row before the route is asked, and the answer takes the place of the claim. Only
//! a success is kept: whatever was refused had no effect, and may be tried again. Calls, batches and messages have keys of
//! their own, which the core looks after.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes, to_bytes},
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use futures_util::FutureExt;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use smol_str::SmolStr;
use toolhub_core::{
    CallError, ErrorKind,
    backend::{
        self, Batch, Change, Durability, Expect, Partition, PartitionKind, RowVersion, StoreError, Table, Write,
    },
};

use crate::{
    app::App,
    body_error,
    extract::{FromParts, IdempotencyHeader},
    problem::{ApiResult, Code, Problem},
    scope::Principal,
};

const SCHEMA_VERSION: u32 = 1;
/// How long an answer is kept.
const RESPONSE_TTL: Duration = Duration::from_secs(24 * 3600);
/// How long a key stays claimed by a request that nobody hears of again, because the process died.
const CLAIM_TTL: Duration = Duration::from_secs(60);
/// A larger answer is not kept.
const MAX_STORED_BYTES: usize = 1 << 20;
/// A key's partition holds one row.
const CLAIM_ROW_ID: SmolStr = SmolStr::new_static("request");
/// What of an answer's headers belongs to it, whoever is answered.
const STORED_HEADERS: [HeaderName; 3] = [header::CONTENT_TYPE, header::ETAG, header::LOCATION];
/// What of a request's headers makes it another request.
const CONDITION_HEADERS: [HeaderName; 2] = [header::IF_MATCH, header::IF_NONE_MATCH];

/// What is kept for a key.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Claim {
    /// The request it was claimed for, as a digest.
    request: String,
    /// What came of it; none yet while it is worked on.
    answer: Option<StoredResponse>,
}

/// An answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredResponse {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

/// Answers for a route, and answers repetitions with what the first was told.
pub(crate) struct Idempotency {
    app: App,
    route: SmolStr,
}

/// What became of the wish for a key.
enum ClaimResult {
    /// It is this request's.
    Acquired(RowVersion),
    /// It was claimed before, for the same request, and this was answered.
    Replay(StoredResponse),
}

impl Idempotency {
    /// Stands before the route of this path.
    pub(crate) fn new(app: &App, path: &'static str) -> Self {
        // Only the last part of a partition's text may hold a `/`.
        Self { app: app.clone(), route: path.replace('/', ".").into() }
    }

    /// Answers a request with what `next` answers, or with what it answered to the same request before.
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
        let place = PartitionKind::Request(self.route.clone(), key);
        let partition = Partition { tenant: principal.tenant.clone(), kind: place };
        let limit = self.app.settings().limits.body;
        let body = to_bytes(body, limit).await.map_err(|error| body_error::problem(&error, limit))?;
        let claim = Claim { request: request_digest(&parts, principal, &body), answer: None };
        let seen = match self.claim(&partition, &claim).await? {
            ClaimResult::Acquired(seen) => seen,
            ClaimResult::Replay(answer) => return answer.into_replay(),
        };
        // A client that goes away and comes back finds the answer: what was begun goes on without it.
        let work = tokio::spawn(async move {
            let answer = AssertUnwindSafe(next(Request::from_parts(parts, Body::from(body)))).catch_unwind().await;
            let response = answer.unwrap_or_else(|_| internal_error().into_response());
            self.complete(&partition, claim, seen, response).await
        });
        work.await.map_err(|_| internal_error())
    }

    /// Claims the key of this partition, or finds out what came of it.
    async fn claim(&self, partition: &Partition, claim: &Claim) -> ApiResult<ClaimResult> {
        let key = backend::RowKey { partition: partition.clone(), table: Table::Claims, id: CLAIM_ROW_ID };
        if let Some(row) = self.app.store().load(&[key], self.app.now()).await?.pop().flatten() {
            let known: Claim = serde_json::from_slice(&row.value).map_err(|error| {
                tracing::error!(%error, "what is kept for an idempotency key cannot be read");
                Problem::new(Code::INTERNAL, "what is kept for this key cannot be read").hint("use another key")
            })?;
            let refused = |kind, why: &str| Problem::from(CallError::new(kind).operator(why));
            return match known.answer {
                _ if known.request != claim.request => {
                    Err(refused(ErrorKind::IdempotencyKeyReused, "the key was used for another request"))
                }
                Some(answer) => Ok(ClaimResult::Replay(answer)),
                None => Err(in_progress()),
            };
        }
        let begun = self.write_claim(partition, Expect::Absent, Some((claim, CLAIM_TTL)), Durability::KillSafe).await;
        match begun {
            // Somebody was quicker.
            Err(StoreError::Conflict { .. }) => Err(in_progress()),
            begun => Ok(ClaimResult::Acquired(begun?)),
        }
    }

    /// Keeps the answer, or gives the key back where nothing was done.
    async fn complete(
        &self,
        partition: &Partition,
        mut claim: Claim,
        seen: RowVersion,
        response: Response,
    ) -> Response {
        let (parts, body) = response.into_parts();
        // These answers are in memory already; no stream comes this way.
        let bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
        claim.answer = StoredResponse::from_response(parts.status, &parts.headers, &bytes);
        let value = claim.answer.is_some().then_some((&claim, RESPONSE_TTL));
        if let Err(error) = self.write_claim(partition, Expect::Same(seen), value, Durability::PowerSafe).await {
            tracing::warn!(%error, "an answer could not be kept for its idempotency key");
        }
        Response::from_parts(parts, Body::from(bytes))
    }

    /// Puts a claim in its place for so long, or takes it away.
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
            Some((claim, keep)) => {
                let value = serde_json::to_vec(claim).map_err(|error| StoreError::Refused(error.to_string()))?;
                Change::Put { value: value.into(), schema: SCHEMA_VERSION, expires: Some(now + keep) }
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
    /// What is kept of an answer, if it is one that is kept.
    fn from_response(status: StatusCode, headers: &HeaderMap, body: &Bytes) -> Option<Self> {
        let body = str::from_utf8(body).ok().filter(|text| status.is_success() && text.len() <= MAX_STORED_BYTES)?;
        let header = |name: &HeaderName| Some((name.to_string(), headers.get(name)?.to_str().ok()?.to_owned()));
        Some(Self {
            status: status.as_u16(),
            headers: STORED_HEADERS.iter().filter_map(header).collect(),
            body: body.into(),
        })
    }

    /// The same answer once more.
    fn into_replay(self) -> ApiResult<Response> {
        let mut response = Response::new(Body::from(self.body));
        let unreadable = |_| Problem::new(Code::INTERNAL, "what is kept for this key cannot be read");
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
    let why = "the first request with this key is not answered yet";
    CallError::new(ErrorKind::IdempotencyInProgress).operator(why).into()
}

fn internal_error() -> Problem {
    Problem::new(Code::INTERNAL, "the request met a mistake in toolhub")
}

/// A request, as far as another one with the same key must be like it: who asks, for what, on which condition.
fn request_digest(parts: &Parts, principal: &Principal, body: &Bytes) -> String {
    let mut digest = Sha256::new();
    let asked = parts.uri.path_and_query().map_or("", |asked| asked.as_str());
    let conditions = CONDITION_HEADERS.map(|name| parts.headers.get(name).map_or(&[][..], HeaderValue::as_bytes));
    let who = principal.caller.as_str().as_bytes();
    for piece in [who, asked.as_bytes()].into_iter().chain(conditions).chain([&body[..]]) {
        digest.update((piece.len() as u64).to_le_bytes());
        digest.update(piece);
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
