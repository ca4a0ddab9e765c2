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
    RestError, answer,
    credentials::{self, Credentials},
    plan::Plan,
    redirect::{self, Hop},
    request::Outgoing,
    send::{self, Opened, SendOptions},
    session::Session,
    trouble::Trouble,
    unpack,
};

/// The executor of one REST tool.
pub(crate) struct Requests {
    plan: Result<Plan, Vec<RestError>>,
}

impl Requests {
    pub(crate) fn new(plan: Result<Plan, Vec<RestError>>) -> Self {
        Self { plan }
    }
}

impl Executor for Requests {
    fn execute<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Reply, ToolError>> {
        Box::pin(async move {
            match &self.plan {
                Ok(plan) => run(plan, job).await,
                Err(problems) => Err(ToolError::new("This tool cannot work.").because(all(problems))),
            }
        })
    }

    fn needs_thread(&self) -> bool {
        self.plan.as_ref().is_ok_and(|plan| plan.session.is_some())
    }

    fn accept(&self, _: &Definition) -> Result<(), String> {
        self.plan.as_ref().map(|_| ()).map_err(|problems| all(problems))
    }

    fn check<'a>(&'a self, _: &'a Definition) -> Option<BoxFuture<'a, bool>> {
        let plan = self.plan.as_ref().ok()?;
        let (origin, target) = plan.health.as_ref()?;
        Some(Box::pin(is_well(plan, origin, target)))
    }
}

fn all(problems: &[RestError]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Whether a service says that it is well.
async fn is_well(plan: &Plan, origin: &Origin, target: &str) -> bool {
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, toolhub_net::USER_AGENT);
    let body = hyper::body::Bytes::new();
    let mut outgoing = Outgoing { method: hyper::Method::GET, target: target.to_owned(), headers, body };
    let asking = async {
        // Who we are is shown only to the service the tool is for.
        if *origin == plan.origin {
            secret_headers(plan, &mut outgoing).ok()?;
            if let Some(shown) = &plan.credentials {
                shown.add(&mut outgoing, plan).await.ok()?;
            }
        }
        let (status, _) = credentials::ask(plan, origin, &outgoing, send::UNWANTED).await.ok()?;
        Some(status.is_success())
    };
    tokio::time::timeout(plan.connection.timeout, asking).await.ok().flatten().unwrap_or(false)
}

async fn run(plan: &Plan, job: Job<'_>) -> Result<Reply, ToolError> {
    let call = job.context;
    let none = serde_json::Map::new();
    let arguments = job.arguments.as_object().unwrap_or(&none);
    let mut outgoing = plan.shape.fill(arguments).map_err(|bad| ToolError::refused(bad.0))?;
    pass_on(&mut outgoing, call);
    let session = match &plan.session {
        Some(name) => Some(Session::open(call, name, &plan.origin).await?),
        None => None,
    };
    let left = AtomicBool::new(false);
    let mut trip = Trip { plan, call, session, left: &left, secrets: Vec::new(), refused: Effect::None };
    let result = trip.within_its_time(outgoing).await;
    let result = result.map_err(|trouble| trouble.told(left.load(Ordering::Relaxed)));
    if let Some(session) = trip.session {
        session.close(&plan.origin, result.as_ref().err()).await;
    }
    result
}

/// Adds the headers whose values are secrets; answers those, which must not be told.
fn secret_headers(plan: &Plan, outgoing: &mut Outgoing) -> Result<Vec<Arc<str>>, Trouble> {
    let mut secrets = Vec::new();
    for (name, secret) in &plan.secret_headers {
        let text = secret.read().map_err(|error| Trouble::Credentials(error.to_string()))?;
        credentials::put(&mut outgoing.headers, name.clone(), &text)?;
        secrets.push(text);
    }
    Ok(secrets)
}

/// What every request carries, and what is passed on of the call: its key and its place in a trace, never who made it.
fn pass_on(outgoing: &mut Outgoing, call: &CallContext) {
    let headers = &mut outgoing.headers;
    headers.entry(USER_AGENT).or_insert(toolhub_net::USER_AGENT);
    headers.entry(ACCEPT).or_insert(HeaderValue::from_static("application/json, text/*;q=0.9, */*;q=0.8"));
    headers.insert(ACCEPT_ENCODING, unpack::UNDERSTOOD);
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

fn told(error: ToolError) -> Trouble {
    Trouble::Told(Box::new(error))
}

/// A request that shows who it is from.
struct Signed<'a> {
    shown: &'a Credentials,
    /// What was shown.
    secret: Arc<str>,
    /// The same request without it.
    unsigned: Outgoing,
}

/// One call on its way, over all its requests.
struct Trip<'a> {
    plan: &'a Plan,
    call: &'a CallContext,
    session: Option<Session<'a>>,
    /// Whether anything of it has left.
    left: &'a AtomicBool,
    /// What must not be told.
    secrets: Vec<Arc<str>>,
    /// What has happened where the service refuses: nothing, unless an earlier request did something.
    refused: Effect,
}

impl Trip<'_> {
    /// The time of a request runs while something is done for it, and stands still while it waits for a permit.
    async fn within_its_time(&mut self, mut outgoing: Outgoing) -> Result<Reply, Trouble> {
        let (plan, call) = (self.plan, self.call);
        let (mut time, mut signed) = (plan.connection.timeout, None);
        let late = || Trouble::Late(plan.connection.timeout);
        self.secrets = secret_headers(plan, &mut outgoing)?;
        if let Some(shown) = &plan.credentials {
            // Before the permit: whoever gives out tokens may be slow, and others need none.
            let (began, unsigned) = (Instant::now(), outgoing.clone());
            let signing = tokio::time::timeout(time, self.sign(shown, &mut outgoing));
            let secret = call.before_it_begins(signing).await.map_err(told)?.unwrap_or_else(|_| Err(late()))?;
            time = time.saturating_sub(began.elapsed());
            signed = Some(Signed { shown, secret, unsigned });
        }
        let permit = call.before_it_begins(plan.pool.permit()).await.map_err(told)?;
        let permit = permit.map_err(|busy| Trouble::Busy(busy.0))?;
        let done = tokio::time::timeout(time, self.make(outgoing, signed, permit)).await;
        done.unwrap_or_else(|_| Err(late()))
    }

    /// Adds what shows who the request is from; answers it, which must not be told.
    async fn sign(&mut self, shown: &Credentials, outgoing: &mut Outgoing) -> Result<Arc<str>, Trouble> {
        let secret = shown.add(outgoing, self.plan).await?;
        self.secrets.push(secret.clone());
        self.secrets.extend(shown.password());
        Ok(secret)
    }

    async fn make(&mut self, outgoing: Outgoing, signed: Option<Signed<'_>>, permit: Permit) -> Result<Reply, Trouble> {
        let method = outgoing.method.clone();
        let mut opened = self.follow(outgoing, Some(permit)).await?;
        // A token may be taken back before its time. One that is new and refused is refused for another reason.
        if let Some(Signed { shown, secret, mut unsigned }) = signed
            && opened.status == StatusCode::UNAUTHORIZED
            && shown.refused(&secret).await
        {
            // Others have the permit while another token is fetched.
            drop(opened.discard().await);
            if self.refused == Effect::None {
                self.left.store(false, Ordering::Relaxed);
            }
            self.sign(shown, &mut unsigned).await?;
            opened = self.follow(unsigned, None).await?;
        }
        self.read(opened, &method).await
    }

    /// Sends a request, and follows it where the service points and it may go.
    async fn follow(&mut self, outgoing: Outgoing, mut permit: Option<Permit>) -> Result<Opened, Trouble> {
        let plan = self.plan;
        let mut hop = Hop { origin: plan.origin.clone(), outgoing, taken: 0, behind: false };
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
            let options = SendOptions { pool, read_timeout, left: self.left, call: Some(self.call) };
            if permit.is_none() {
                permit = Some(pool.permit().await.map_err(|busy| Trouble::Busy(busy.0))?);
            }
            let opened = send::open(&options, &hop.outgoing, permit.take()).await?;
            if let Some(session) = self.session.as_mut().filter(|_| home) {
                session.take_in(&opened.headers, &hop.origin, &hop.outgoing.target);
            }
            match own {
                Some(own) => hop.outgoing.headers.insert(COOKIE, own),
                None => hop.outgoing.headers.remove(COOKIE),
            };
            let Some(next) = redirect::next(plan, &hop, opened.status, &opened.headers)? else { return Ok(opened) };
            let back = opened.discard().await;
            // A permit is for one service.
            permit = back.filter(|_| next.origin == hop.origin);
            hop = next;
            if hop.behind {
                self.refused = Effect::Unknown;
            }
        }
    }

    async fn read(&self, opened: Opened, method: &hyper::Method) -> Result<Reply, Trouble> {
        let session = self.session.iter().flat_map(Session::secrets);
        let secrets: Vec<&str> = self.secrets.iter().map(|secret| &**secret).chain(session).collect();
        answer::read(self.plan, self.call, opened, method, &secrets, self.refused).await
    }
}
