//! Runs a call of a REST tool: makes the request, sends it, follows it, reads the answer.
//!
//! In: a job and a plan. Out: a reply or a failure. The order of the steps is here; each is done elsewhere.

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
}

fn join_problems(problems: &[RestError]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Whether a service says that it is well.
async fn is_healthy(plan: &Plan, origin: &Origin, target: &str) -> bool {
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, toolhub_net::USER_AGENT);
    let body = hyper::body::Bytes::new();
    let mut outgoing = OutgoingRequest { method: hyper::Method::GET, target: target.to_owned(), headers, body };
    let asking = async {
        // Who we are is shown only to the service the tool is for.
        if *origin == plan.origin {
            add_secret_headers(plan, &mut outgoing).ok()?;
            if let Some(shown) = &plan.credentials {
                shown.apply(&mut outgoing, plan).await.ok()?;
            }
        }
        let (status, _) = credentials::send_auxiliary(plan, origin, &outgoing, send::DISCARD_LIMIT).await.ok()?;
        Some(status.is_success())
    };
    tokio::time::timeout(plan.connection.timeout, asking).await.ok().flatten().unwrap_or(false)
}

async fn run(plan: &Plan, job: Job<'_>) -> Result<Reply, ToolError> {
    let call = job.context;
    let none = serde_json::Map::new();
    let arguments = job.arguments.as_object().unwrap_or(&none);
    let mut outgoing = plan.shape.fill(arguments).map_err(|bad| ToolError::refused(bad.0))?;
    add_call_headers(&mut outgoing, call);
    let session = match &plan.session {
        Some(name) => Some(Session::open(call, name, &plan.origin).await?),
        None => None,
    };
    let left = AtomicBool::new(false);
    let mut trip =
        CallExchange { plan, call, session, sent: &left, secrets: Vec::new(), effect_on_refusal: Effect::None };
    let result = trip.run_with_timeout(outgoing).await;
    let result = result.map_err(|trouble| trouble.into_tool_error(left.load(Ordering::Relaxed)));
    if let Some(session) = trip.session {
        session.close(&plan.origin, result.as_ref().err()).await;
    }
    result
}

/// Adds the headers whose values are secrets; answers those, which must not be told.
fn add_secret_headers(plan: &Plan, outgoing: &mut OutgoingRequest) -> Result<Vec<Arc<str>>, RequestError> {
    let mut secrets = Vec::new();
    for (name, secret) in &plan.secret_headers {
        let text = secret.read().map_err(|error| RequestError::Credentials(error.to_string()))?;
        credentials::insert_sensitive(&mut outgoing.headers, name.clone(), &text)?;
        secrets.push(text);
    }
    Ok(secrets)
}

/// What every request carries, and what is passed on of the call: its key and its place in a trace, never who made it.
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

/// A request that shows who it is from.
struct SignedRequest<'a> {
    shown: &'a Credentials,
    /// What was shown.
    secret: Arc<str>,
    /// The same request without it.
    unsigned: OutgoingRequest,
}

/// One call on its way, over all its requests.
struct CallExchange<'a> {
    plan: &'a Plan,
    call: &'a CallContext,
    session: Option<Session<'a>>,
    /// Whether anything of it has left.
    sent: &'a AtomicBool,
    /// What must not be told.
    secrets: Vec<Arc<str>>,
    /// What has happened where the service refuses: nothing, unless an earlier request did something.
    effect_on_refusal: Effect,
}

impl CallExchange<'_> {
    /// The time of a request runs while something is done for it, and stands still while it waits for a permit.
    async fn run_with_timeout(&mut self, mut outgoing: OutgoingRequest) -> Result<Reply, RequestError> {
        let (plan, call) = (self.plan, self.call);
        let (mut time, mut signed) = (plan.connection.timeout, None);
        let late = || RequestError::Timeout(plan.connection.timeout);
        self.secrets = add_secret_headers(plan, &mut outgoing)?;
        if let Some(shown) = &plan.credentials {
            // Before the permit: whoever gives out tokens may be slow, and others need none.
            let (began, unsigned) = (Instant::now(), outgoing.clone());
            let signing = tokio::time::timeout(time, self.sign(shown, &mut outgoing));
            let secret = call.wait_before_start(signing).await.map_err(tool_error)?.unwrap_or_else(|_| Err(late()))?;
            time = time.saturating_sub(began.elapsed());
            signed = Some(SignedRequest { shown, secret, unsigned });
        }
        let permit = call.wait_before_start(plan.pool.permit()).await.map_err(tool_error)?;
        let permit = permit.map_err(|busy| RequestError::Busy(busy.0))?;
        let done = tokio::time::timeout(time, self.send_and_read(outgoing, signed, permit)).await;
        done.unwrap_or_else(|_| Err(late()))
    }

    /// Adds what shows who the request is from; answers it, which must not be told.
    async fn sign(&mut self, shown: &Credentials, outgoing: &mut OutgoingRequest) -> Result<Arc<str>, RequestError> {
        let secret = shown.apply(outgoing, self.plan).await?;
        self.secrets.push(secret.clone());
        self.secrets.extend(shown.password());
        Ok(secret)
    }

    async fn send_and_read(
        &mut self,
        outgoing: OutgoingRequest,
        signed: Option<SignedRequest<'_>>,
        permit: Permit,
    ) -> Result<Reply, RequestError> {
        let method = outgoing.method.clone();
        let mut opened = self.follow_redirects(outgoing, Some(permit)).await?;
        // A token may be taken back before its time. One that is new and refused is refused for another reason.
        if let Some(SignedRequest { shown, secret, mut unsigned }) = signed
            && opened.status == StatusCode::UNAUTHORIZED
            && shown.invalidate(&secret).await
        {
            // Others have the permit while another token is fetched.
            drop(opened.discard().await);
            if self.effect_on_refusal == Effect::None {
                self.sent.store(false, Ordering::Relaxed);
            }
            self.sign(shown, &mut unsigned).await?;
            opened = self.follow_redirects(unsigned, None).await?;
        }
        self.read_response(opened, &method).await
    }

    /// Sends a request, and follows it where the service points and it may go.
    async fn follow_redirects(
        &mut self,
        outgoing: OutgoingRequest,
        mut permit: Option<Permit>,
    ) -> Result<OpenResponse, RequestError> {
        let plan = self.plan;
        let mut hop = Hop { origin: plan.origin.clone(), outgoing, redirect_count: 0, after_side_effect: false };
        loop {
            let (own, home) = (hop.outgoing.headers.get(COOKIE).cloned(), hop.origin == plan.origin);
            if let Some(session) = self.session.as_ref().filter(|_| home) {
                let cookies = session.header(&hop.origin, &hop.outgoing.target);
                hop.outgoing.add_cookies(&cookies);
            }
            let elsewhere;
            let pool = if home {
                &plan.pool
            } else {
                elsewhere = plan.upstreams.pool(&hop.origin, &plan.pool_options);
                &elsewhere
            };
            let read_timeout = plan.connection.read_timeout;
            let options = SendOptions { pool, read_timeout, sent: self.sent, call: Some(self.call) };
            if permit.is_none() {
                permit = Some(pool.permit().await.map_err(|busy| RequestError::Busy(busy.0))?);
            }
            let opened = send::send_request(&options, &hop.outgoing, permit.take()).await?;
            if let Some(session) = self.session.as_mut().filter(|_| home) {
                session.store_cookies(&opened.headers, &hop.origin, &hop.outgoing.target);
            }
            match own {
                Some(own) => hop.outgoing.headers.insert(COOKIE, own),
                None => hop.outgoing.headers.remove(COOKIE),
            };
            let Some(next) = redirect::next_hop(plan, &hop, opened.status, &opened.headers)? else { return Ok(opened) };
            let back = opened.discard().await;
            // A permit is for one service.
            permit = back.filter(|_| next.origin == hop.origin);
            hop = next;
            if hop.after_side_effect {
                self.effect_on_refusal = Effect::Unknown;
            }
        }
    }

    async fn read_response(&self, opened: OpenResponse, method: &hyper::Method) -> Result<Reply, RequestError> {
        let session = self.session.iter().flat_map(Session::secrets);
        let secrets: Vec<&str> = self.secrets.iter().map(|secret| &**secret).chain(session).collect();
        response::read(self.plan, self.call, opened, method, &secrets, self.effect_on_refusal).await
    }
}
