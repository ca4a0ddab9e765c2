//! Executes a call of a REST tool: builds the request, authenticates, sends, follows redirects, reads the response.
//!
//! In: a job and a plan. Out: a reply or an error. This module defines the order of the steps; other modules implement them.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use hyper::{
    HeaderMap, StatusCode,
    header::{ACCEPT, ACCEPT_ENCODING, COOKIE, HeaderName, HeaderValue, USER_AGENT},
};
use tokio::time::Instant;
use toolhub_core::{BoxFuture, CallContext, Definition, Effect, Executor, Job, Reply, ToolError};
use toolhub_net::{Origin, Permit};

use super::{
    RestError,
    credentials::{self, Credentials},
    decompress,
    plan::Plan,
    redirect::{self, Hop},
    request::OutgoingRequest,
    request_error::RequestError,
    response,
    send::{self, OpenResponse, SendOptions},
    session::Session,
};
use crate::secret_mask::SecretMask;

/// The executor of one REST tool.
pub(crate) struct RestExecutor {
    plan: Result<Plan, Vec<RestError>>,
}

impl RestExecutor {
    pub(crate) fn new(plan: Result<Plan, Vec<RestError>>) -> Self {
        Self { plan }
    }
}

impl Executor for RestExecutor {
    fn execute<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Reply, ToolError>> {
        Box::pin(async move {
            match &self.plan {
                Ok(plan) => run(plan, job).await,
                Err(problems) => Err(ToolError::new("This tool cannot work.").with_cause(join_problems(problems))),
            }
        })
    }

    fn needs_thread(&self) -> bool {
        self.plan.as_ref().is_ok_and(|plan| plan.session.is_some())
    }

    fn validate_definition(&self, _: &Definition) -> Result<(), String> {
        self.plan.as_ref().map(|_| ()).map_err(|problems| join_problems(problems))
    }

    fn health_check<'a>(&'a self, _: &'a Definition) -> Option<BoxFuture<'a, bool>> {
        let plan = self.plan.as_ref().ok()?;
        let (origin, target) = plan.health.as_ref()?;
        Some(Box::pin(is_healthy(plan, origin, target)))
    }

    fn close<'a>(&'a self, _: &'a Definition) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(self.plan.as_ref().is_ok_and(close_connections)))
    }
}

/// Closes the idle connections of a tool, unless another tool or a running call uses the same pool.
fn close_connections(plan: &Plan) -> bool {
    Arc::strong_count(&plan.pool) == 1 && plan.pool.close_idle() > 0
}

fn join_problems(problems: &[RestError]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Runs the health check of a service.
async fn is_healthy(plan: &Plan, origin: &Origin, target: &str) -> bool {
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, toolhub_net::USER_AGENT);
    let body = hyper::body::Bytes::new();
    let mut outgoing = OutgoingRequest { method: hyper::Method::GET, target: target.to_owned(), headers, body };
    let check = async {
        // Credentials are sent only to the origin of the tool.
        if *origin == plan.origin {
            add_secret_headers(plan, &mut outgoing).ok()?;
            if let Some(credentials) = &plan.credentials {
                credentials.apply(&mut outgoing, plan).await.ok()?;
            }
        }
        let (status, _) = credentials::send_auxiliary(plan, origin, &outgoing, send::DISCARD_LIMIT).await.ok()?;
        Some(status.is_success())
    };
    tokio::time::timeout(plan.connection.timeout, check).await.ok().flatten().unwrap_or(false)
}

async fn run(plan: &Plan, job: Job<'_>) -> Result<Reply, ToolError> {
    let call = job.context;
    let empty = serde_json::Map::new();
    let arguments = job.arguments.as_object().unwrap_or(&empty);
    let mut outgoing = plan.template.fill(arguments).map_err(|error| ToolError::refused(error.0))?;
    add_call_headers(&mut outgoing, call);
    let session = match &plan.session {
        Some(name) => Some(Session::open(call, name, &plan.origin).await?),
        None => None,
    };
    let sent = AtomicBool::new(false);
    let mut exchange =
        CallExchange { plan, call, session, sent: &sent, secrets: Vec::new(), effect_on_refusal: Effect::None };
    let result = exchange.run_with_timeout(outgoing).await;
    let result = result.map_err(|error| {
        let error = error.into_tool_error(sent.load(Ordering::Relaxed));
        exchange.secret_mask().error(error)
    });
    if let Some(session) = exchange.session {
        session.close(&plan.origin).await;
    }
    result
}

/// Adds the secret headers; returns their values, which must be redacted.
pub(crate) fn add_secret_headers(plan: &Plan, outgoing: &mut OutgoingRequest) -> Result<Vec<Arc<str>>, RequestError> {
    let mut secrets = Vec::new();
    for (name, secret) in &plan.secret_headers {
        let text = secret.read().map_err(|error| RequestError::Credentials(error.to_string()))?;
        credentials::insert_sensitive(&mut outgoing.headers, name.clone(), &text)?;
        secrets.push(text);
    }
    Ok(secrets)
}

/// Adds the default headers, and the idempotency key and trace context of the call. The caller's identity is never passed on.
fn add_call_headers(outgoing: &mut OutgoingRequest, call: &CallContext) {
    let headers = &mut outgoing.headers;
    headers.entry(USER_AGENT).or_insert(toolhub_net::USER_AGENT);
    headers.entry(ACCEPT).or_insert(HeaderValue::from_static("application/json, text/*;q=0.9, */*;q=0.8"));
    headers.insert(ACCEPT_ENCODING, decompress::ACCEPTED_ENCODINGS);
    let mut add = |name: &'static str, text: &str| {
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.entry(HeaderName::from_static(name)).or_insert(value);
        }
    };
    if let Some(key) = call.idempotency_key() {
        add("idempotency-key", key.as_str());
    }
    if let Some(trace) = call.trace() {
        add("traceparent", &trace.traceparent());
        trace.state.iter().for_each(|state| add("tracestate", state));
    }
}

fn tool_error(error: ToolError) -> RequestError {
    RequestError::Tool(Box::new(error))
}

/// A request that carries credentials.
struct SignedRequest<'a> {
    credentials: &'a Credentials,
    /// The secret that was added.
    secret: Arc<str>,
    /// The same request without credentials.
    unsigned: OutgoingRequest,
}

/// All requests of one call.
struct CallExchange<'a> {
    plan: &'a Plan,
    call: &'a CallContext,
    session: Option<Session<'a>>,
    /// Whether any byte was sent.
    sent: &'a AtomicBool,
    /// Secrets to redact.
    secrets: Vec<Arc<str>>,
    /// The effect to report if the service refuses: none, unless an earlier request may have had an effect.
    effect_on_refusal: Effect,
}

impl CallExchange<'_> {
    /// Runs the exchange within the request timeout, which does not include the wait for a permit of the pool.
    async fn run_with_timeout(&mut self, mut outgoing: OutgoingRequest) -> Result<Reply, RequestError> {
        let (plan, call) = (self.plan, self.call);
        let (mut remaining, mut signed) = (plan.connection.timeout, None);
        let timed_out = || RequestError::Timeout(plan.connection.timeout);
        self.secrets = add_secret_headers(plan, &mut outgoing)?;
        self.secrets.extend(plan.secret_texts.iter().cloned());
        if let Some(credentials) = &plan.credentials {
            // Before the permit: a slow token endpoint must not block calls of tools that need no token.
            let (start, unsigned) = (Instant::now(), outgoing.clone());
            let signing = tokio::time::timeout(remaining, self.sign(credentials, &mut outgoing));
            let secret =
                call.wait_before_start(signing).await.map_err(tool_error)?.unwrap_or_else(|_| Err(timed_out()))?;
            remaining = remaining.saturating_sub(start.elapsed());
            signed = Some(SignedRequest { credentials, secret, unsigned });
        }
        let permit = call.wait_before_start(plan.pool.permit()).await.map_err(tool_error)?;
        let permit = permit.map_err(|busy| RequestError::Busy(busy.0))?;
        let reply = tokio::time::timeout(remaining, self.send_and_read(outgoing, signed, permit)).await;
        reply.unwrap_or_else(|_| Err(timed_out()))
    }

    /// Adds the credentials; returns the secret that was added.
    async fn sign(
        &mut self,
        credentials: &Credentials,
        outgoing: &mut OutgoingRequest,
    ) -> Result<Arc<str>, RequestError> {
        let secret = credentials.apply(outgoing, self.plan).await?;
        self.secrets.push(secret.clone());
        self.secrets.extend(credentials.password());
        Ok(secret)
    }

    async fn send_and_read(
        &mut self,
        outgoing: OutgoingRequest,
        signed: Option<SignedRequest<'_>>,
        permit: Permit,
    ) -> Result<Reply, RequestError> {
        let method = outgoing.method.clone();
        let mut response = self.follow_redirects(outgoing, Some(permit)).await?;
        // A token may be revoked before it expires, so a 401 is retried once with a new token. If that is refused too, the cause is
        // another one.
        if let Some(SignedRequest { credentials, secret, mut unsigned }) = signed
            && response.status == StatusCode::UNAUTHORIZED
            && credentials.invalidate(&secret).await
        {
            // Release the permit while the new token is fetched.
            drop(response.discard().await);
            if self.effect_on_refusal == Effect::None {
                self.sent.store(false, Ordering::Relaxed);
            }
            self.sign(credentials, &mut unsigned).await?;
            response = self.follow_redirects(unsigned, None).await?;
        }
        self.read_response(response, &method).await
    }

    /// Sends a request, and follows the redirects that are allowed.
    async fn follow_redirects(
        &mut self,
        outgoing: OutgoingRequest,
        mut permit: Option<Permit>,
    ) -> Result<OpenResponse, RequestError> {
        let plan = self.plan;
        let mut hop = Hop { origin: plan.origin.clone(), outgoing, redirect_count: 0, after_side_effect: false };
        loop {
            let (own_cookies, same_origin) = (hop.outgoing.headers.get(COOKIE).cloned(), hop.origin == plan.origin);
            if let Some(session) = self.session.as_ref().filter(|_| same_origin) {
                let cookies = session.header(&hop.origin, &hop.outgoing.target);
                hop.outgoing.add_cookies(&cookies);
            }
            let other_pool;
            let pool = if same_origin {
                &plan.pool
            } else {
                other_pool = plan.upstreams.pool(&hop.origin, &plan.pool_options);
                &other_pool
            };
            let read_timeout = plan.connection.read_timeout;
            let options = SendOptions { pool, read_timeout, sent: self.sent, call: Some(self.call) };
            if permit.is_none() {
                permit = Some(pool.permit().await.map_err(|busy| RequestError::Busy(busy.0))?);
            }
            let response = send::send_request(&options, &hop.outgoing, permit.take()).await?;
            if let Some(session) = self.session.as_mut().filter(|_| same_origin) {
                session.store_cookies(&response.headers, &hop.origin, &hop.outgoing.target);
            }
            match own_cookies {
                Some(cookies) => hop.outgoing.headers.insert(COOKIE, cookies),
                None => hop.outgoing.headers.remove(COOKIE),
            };
            let Some(next) = redirect::next_hop(plan, &hop, response.status, &response.headers)? else {
                return Ok(response);
            };
            let released = response.discard().await;
            // A permit belongs to the pool of one origin.
            permit = released.filter(|_| next.origin == hop.origin);
            hop = next;
            if hop.after_side_effect {
                self.effect_on_refusal = Effect::Unknown;
            }
        }
    }

    async fn read_response(&self, response: OpenResponse, method: &hyper::Method) -> Result<Reply, RequestError> {
        response::read(self.plan, self.call, response, method, self.secret_mask(), self.effect_on_refusal).await
    }

    /// Masks the secrets that the requests carried.
    fn secret_mask(&self) -> SecretMask {
        let session = self.session.iter().flat_map(Session::secrets);
        SecretMask::new(self.secrets.iter().map(|secret| &**secret).chain(session))
    }
}
