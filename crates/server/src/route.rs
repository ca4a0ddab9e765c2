//! One route: its address, who may use it, who serves it and what it says, in one place.
//!
//! In: the list of `api::routes`. Out: a router in which every route is guarded by the access it names, and the description
//! of the API. A route cannot be added without an access or without being described.

use std::{convert::Infallible, sync::Arc};

use axum::{
    Router,
    extract::Request,
    http::Method,
    response::{IntoResponse, Response},
    routing::{MethodFilter, MethodRouter},
};
use futures_core::future::BoxFuture;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::{
    app::App,
    auth::RouteGuard,
    handler::Handler,
    idempotency::Idempotency,
    operation::Operation,
    problem::{Code, Problem},
    scope::Access,
};

/// A handler without its type: whatever is built around it is compiled once, not once for each route.
type ErasedHandler = Arc<dyn Fn(Request, App) -> BoxFuture<'static, Response> + Send + Sync>;

/// What one status of an answer means, and holds.
pub(crate) struct ResponseSpec {
    pub(crate) status: u16,
    pub(crate) description: &'static str,
    pub(crate) media: &'static str,
    pub(crate) schema: Option<fn(&mut SchemaGenerator) -> Schema>,
}

/// One route.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    pub(crate) tag: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) responses: Vec<ResponseSpec>,
    pub(crate) problems: Vec<Code>,
    /// Names of the core's kinds of errors it may answer with.
    pub(crate) refusals: Vec<toolhub_core::ErrorKind>,
    pub(crate) describe_inputs: fn(&mut Operation<'_>),
    /// Whether its problems say `"success": false`.
    adds_success_flag: bool,
    /// The word in the audit, where what happens here is kept.
    pub(crate) audited: Option<&'static str>,
    /// Whether a repetition with the same `Idempotency-Key` is answered as the first was, without the handler.
    pub(crate) replays_responses: bool,
    /// Headers of answers, by their statuses, that do not follow from what it takes.
    pub(crate) response_headers: Vec<(&'static [u16], &'static str, &'static str)>,
    handler: ErasedHandler,
}

impl Route {
    /// A route in the group `tag`, served by `handler`.
    pub(crate) fn new<T, H>(method: Method, path: &'static str, access: Access, tag: &'static str, handler: H) -> Self
    where
        H: Handler<T>,
    {
        let call = Arc::new(move |request: Request, app: App| handler.call(request, app));
        Self::from_erased(method, path, access, tag, H::describe, call)
    }

    fn from_erased(
        method: Method,
        path: &'static str,
        access: Access,
        tag: &'static str,
        inputs: fn(&mut Operation<'_>),
        handler: ErasedHandler,
    ) -> Self {
        Self {
            replays_responses: method == Method::POST,
            method,
            path,
            access,
            tag,
            summary: "",
            responses: Vec::new(),
            problems: Vec::new(),
            refusals: Vec::new(),
            describe_inputs: inputs,
            adds_success_flag: false,
            audited: None,
            response_headers: Vec::new(),
            handler,
        }
    }

    /// What it does, in one line.
    pub(crate) fn summary(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    /// Answers with JSON of this type.
    pub(crate) fn json_response<T: JsonSchema>(mut self, status: u16, what: &'static str) -> Self {
        let schema = SchemaGenerator::subschema_for::<T>;
        self.responses.push(ResponseSpec {
            status,
            description: what,
            media: "application/json",
            schema: Some(schema),
        });
        self
    }

    /// Answers with something that is no JSON.
    pub(crate) fn response(mut self, status: u16, media: &'static str, what: &'static str) -> Self {
        self.responses.push(ResponseSpec { status, description: what, media, schema: None });
        self
    }

    /// Answers with nothing but a status.
    pub(crate) fn empty_response(self, status: u16, what: &'static str) -> Self {
        self.response(status, "", what)
    }

    /// Its problems say `"success": false`, whoever answers with them.
    pub(crate) fn with_success_flag(mut self) -> Self {
        self.adds_success_flag = true;
        self
    }

    /// What happens here is kept in the audit, under this word: who, when, from where, and what came of it.
    pub(crate) fn audited(mut self, word: &'static str) -> Self {
        self.audited = Some(word);
        self
    }

    /// Answers of these statuses may have this header.
    pub(crate) fn response_header(
        mut self,
        statuses: &'static [u16],
        header: &'static str,
        what: &'static str,
    ) -> Self {
        self.response_headers.push((statuses, header, what));
        self
    }

    /// The handler knows what to do about repetitions.
    pub(crate) fn handles_idempotency(mut self) -> Self {
        self.replays_responses = false;
        self
    }

    /// The problems of HTTP it may answer with, beyond those every route may.
    pub(crate) fn problems(mut self, codes: &[Code]) -> Self {
        self.problems.extend_from_slice(codes);
        self
    }

    /// The refusals of the core it may answer with.
    pub(crate) fn refusals(mut self, kinds: &[toolhub_core::ErrorKind]) -> Self {
        self.refusals.extend_from_slice(kinds);
        self
    }
}

/// All routes as one router, each behind its guard.
pub(crate) fn router(routes: Vec<Route>, app: &App) -> Router<App> {
    routes.into_iter().fold(Router::new(), |router, route| {
        let Route {
            method, path, access, audited, adds_success_flag: admits, replays_responses: once, handler, ..
        } = route;
        let filter = MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::GET);
        let meter = app.meters().route(path, method.as_str());
        let guard = RouteGuard { app: app.clone(), access, route: path, audited, meter };
        let idempotency = once.then(|| Arc::new(Idempotency::new(app, path)));
        let endpoint = Arc::new(Endpoint { app: app.clone(), guard, idempotency, handler, adds_success_flag: admits });
        let serve = tower::service_fn(move |request| {
            let answer = endpoint.clone().serve(request);
            async move { Ok::<_, Infallible>(answer.await) }
        });
        router.route(path, MethodRouter::new().on_service(filter, serve))
    })
}

/// A route at work. What is around the handlers is here, once for all of them.
struct Endpoint {
    app: App,
    guard: RouteGuard,
    idempotency: Option<Arc<Idempotency>>,
    handler: ErasedHandler,
    adds_success_flag: bool,
}

impl Endpoint {
    /// Answers a request: the guard, then idempotency where the route wants it, then the handler.
    async fn serve(self: Arc<Self>, request: Request) -> Response {
        let behind = self.clone();
        let response = self.guard.serve(request, move |request| behind.handle(request)).await;
        if self.adds_success_flag { add_success_flag(response) } else { response }
    }

    fn handle(self: Arc<Self>, request: Request) -> BoxFuture<'static, Response> {
        match self.idempotency.clone() {
            None => (self.handler)(request, self.app.clone()),
            Some(idempotency) => {
                Box::pin(idempotency.serve(request, move |request| (self.handler)(request, self.app.clone())))
            }
        }
    }
}

/// Adds `"success": false` to a problem.
fn add_success_flag(response: Response) -> Response {
    let Some(problem) = response.extensions().get::<Problem>().cloned() else { return response };
    let mut admitted = problem.with("success", false).into_response();
    for (name, value) in response.headers() {
        admitted.headers_mut().entry(name).or_insert_with(|| value.clone());
    }
    admitted
}
