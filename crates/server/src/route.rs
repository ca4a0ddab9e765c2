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
pub(crate) struct Says {
    pub(crate) status: u16,
    pub(crate) what: &'static str,
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
    pub(crate) answers: Vec<Says>,
    pub(crate) problems: Vec<Code>,
    /// Names of the core's kinds of errors it may answer with.
    pub(crate) refusals: Vec<toolhub_core::ErrorKind>,
    pub(crate) inputs: fn(&mut Operation<'_>),
    /// Whether its problems say `"success": false`.
    admits: bool,
    /// The word in the audit, where what happens here is kept.
    pub(crate) audited: Option<&'static str>,
    /// Whether a repetition with the same `Idempotency-Key` is answered as the first was, without the handler.
    pub(crate) once: bool,
    /// Headers of answers, by their statuses, that do not follow from what it takes.
    pub(crate) gives: Vec<(&'static [u16], &'static str, &'static str)>,
    handler: ErasedHandler,
}

impl Route {
    /// A route in the group `tag`, served by `handler`.
    pub(crate) fn new<T, H>(method: Method, path: &'static str, access: Access, tag: &'static str, handler: H) -> Self
    where
        H: Handler<T>,
    {
        let call = Arc::new(move |request: Request, app: App| handler.call(request, app));
        Self::erased(method, path, access, tag, H::describe, call)
    }

    fn erased(
        method: Method,
        path: &'static str,
        access: Access,
        tag: &'static str,
        inputs: fn(&mut Operation<'_>),
        handler: ErasedHandler,
    ) -> Self {
        Self {
            once: method == Method::POST,
            method,
            path,
            access,
            tag,
            summary: "",
            answers: Vec::new(),
            problems: Vec::new(),
            refusals: Vec::new(),
            inputs,
            admits: false,
            audited: None,
            gives: Vec::new(),
            handler,
        }
    }

    /// What it does, in one line.
    pub(crate) fn says(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    /// Answers with JSON of this type.
    pub(crate) fn answers<T: JsonSchema>(mut self, status: u16, what: &'static str) -> Self {
        let schema = SchemaGenerator::subschema_for::<T>;
        self.answers.push(Says { status, what, media: "application/json", schema: Some(schema) });
        self
    }

    /// Answers with something that is no JSON.
    pub(crate) fn answers_as(mut self, status: u16, media: &'static str, what: &'static str) -> Self {
        self.answers.push(Says { status, what, media, schema: None });
        self
    }

    /// Answers with nothing but a status.
    pub(crate) fn answers_nothing(self, status: u16, what: &'static str) -> Self {
        self.answers_as(status, "", what)
    }

    /// Its problems say `"success": false`, whoever answers with them.
    pub(crate) fn admits_failure(mut self) -> Self {
        self.admits = true;
        self
    }

    /// What happens here is kept in the audit, under this word: who, when, from where, and what came of it.
    pub(crate) fn audited(mut self, word: &'static str) -> Self {
        self.audited = Some(word);
        self
    }

    /// Answers of these statuses may have this header.
    pub(crate) fn gives(mut self, statuses: &'static [u16], header: &'static str, what: &'static str) -> Self {
        self.gives.push((statuses, header, what));
        self
    }

    /// The handler knows what to do about repetitions.
    pub(crate) fn minds_repetitions(mut self) -> Self {
        self.once = false;
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
        let Route { method, path, access, audited, admits, once, handler, .. } = route;
        let filter = MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::GET);
        let meter = app.meters().route(path, method.as_str());
        let guard = RouteGuard { app: app.clone(), access, route: path, audited, meter };
        let idempotency = once.then(|| Arc::new(Idempotency::new(app, path)));
        let endpoint = Arc::new(Endpoint { app: app.clone(), guard, idempotency, handler, admits });
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
    admits: bool,
}

impl Endpoint {
    /// Answers a request: the guard, then idempotency where the route wants it, then the handler.
    async fn serve(self: Arc<Self>, request: Request) -> Response {
        let behind = self.clone();
        let response = self.guard.serve(request, move |request| behind.handle(request)).await;
        if self.admits { admit(response) } else { response }
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
fn admit(response: Response) -> Response {
    let Some(problem) = response.extensions().get::<Problem>().cloned() else { return response };
    let mut admitted = problem.with("success", false).into_response();
    for (name, value) in response.headers() {
        admitted.headers_mut().entry(name).or_insert_with(|| value.clone());
    }
    admitted
}
