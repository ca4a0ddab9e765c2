//! One route: its path, access, handler and OpenAPI description in one place.
//!
//! In: the list of `api::routes`. Out: a router in which every route is guarded by its access, and the data for the
//! OpenAPI document. A route cannot be added without an access or a description.

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
    auth::{KeyPage, RouteGuard},
    handler::Handler,
    idempotency::Idempotency,
    operation::Operation,
    problem::{Code, Problem},
    scope::Access,
};

/// A type-erased handler: the middleware around it is compiled once, not once per route.
type ErasedHandler = Arc<dyn Fn(Request, App) -> BoxFuture<'static, Response> + Send + Sync>;

/// The meaning and content of one response status.
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
    /// The error kinds of the core that it may answer with.
    pub(crate) refusals: Vec<toolhub_core::ErrorKind>,
    pub(crate) describe_inputs: fn(&mut Operation<'_>),
    /// Whether its problems carry `"success": false`.
    adds_success_flag: bool,
    /// The action to record in the audit log, if the route is audited.
    pub(crate) audited: Option<&'static str>,
    /// The action to record instead if it does not succeed. Such requests are recorded at the rate of denied ones.
    pub(crate) audited_failures: Option<&'static str>,
    /// Whether the idempotency middleware replays responses to repetitions with the same `Idempotency-Key`.
    pub(crate) replays_responses: bool,
    /// Response headers, by status, that do not follow from its parameters.
    pub(crate) response_headers: Vec<(&'static [u16], &'static str, &'static str)>,
    /// The page for a browser that sends no key.
    pub(crate) key_page: Option<KeyPage>,
    /// Whether it is a health check, which is answered even when the server is full.
    is_health_check: bool,
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
            audited_failures: None,
            response_headers: Vec::new(),
            key_page: None,
            is_health_check: false,
            handler,
        }
    }

    /// Sets the one-line summary.
    pub(crate) fn summary(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    /// Adds a response with JSON of this type.
    pub(crate) fn json_response<T: JsonSchema>(mut self, status: u16, description: &'static str) -> Self {
        let schema = SchemaGenerator::subschema_for::<T>;
        self.responses.push(ResponseSpec { status, description, media: "application/json", schema: Some(schema) });
        self
    }

    /// Adds a response of another media type.
    pub(crate) fn response(mut self, status: u16, media: &'static str, description: &'static str) -> Self {
        self.responses.push(ResponseSpec { status, description, media, schema: None });
        self
    }

    /// Adds a stream of server-sent events with data of this type.
    pub(crate) fn event_response<T: JsonSchema>(mut self, description: &'static str) -> Self {
        let schema = SchemaGenerator::subschema_for::<T>;
        self.responses.push(ResponseSpec {
            status: 200,
            description,
            media: "text/event-stream",
            schema: Some(schema),
        });
        self
    }

    /// Adds a response without a body.
    pub(crate) fn empty_response(self, status: u16, description: &'static str) -> Self {
        self.response(status, "", description)
    }

    /// Makes all of its problems carry `"success": false`.
    pub(crate) fn with_success_flag(mut self) -> Self {
        self.adds_success_flag = true;
        self
    }

    /// Records its requests in the audit log as this action: caller, time, address and status.
    pub(crate) fn audited(mut self, action: &'static str) -> Self {
        self.audited = Some(action);
        self
    }

    /// Records its requests that do not succeed as another action.
    pub(crate) fn audited_failures(mut self, action: &'static str) -> Self {
        self.audited_failures = Some(action);
        self
    }

    /// Adds a header to the responses of these statuses.
    pub(crate) fn response_header(
        mut self,
        statuses: &'static [u16],
        header: &'static str,
        description: &'static str,
    ) -> Self {
        self.response_headers.push((statuses, header, description));
        self
    }

    /// The handler takes care of `Idempotency-Key` itself.
    pub(crate) fn handles_idempotency(mut self) -> Self {
        self.replays_responses = false;
        self
    }

    /// Answers a browser that sends no key with this page, and status 401.
    pub(crate) fn key_page(mut self, page: KeyPage) -> Self {
        self.key_page = Some(page);
        self
    }

    /// Answers even when the server is full.
    pub(crate) fn health_check(mut self) -> Self {
        self.is_health_check = true;
        self
    }

    /// Adds HTTP problems it may answer with, beyond those of every route.
    pub(crate) fn problems(mut self, codes: &[Code]) -> Self {
        self.problems.extend_from_slice(codes);
        self
    }

    /// Adds error kinds of the core it may answer with.
    pub(crate) fn refusals(mut self, kinds: &[toolhub_core::ErrorKind]) -> Self {
        self.refusals.extend_from_slice(kinds);
        self
    }
}

/// All routes as one router, each behind its guard.
pub(crate) fn router(routes: Vec<Route>, app: &App) -> Router<App> {
    routes.into_iter().fold(Router::new(), |router, route| {
        let Route { method, path, access, audited, adds_success_flag, replays_responses, handler, .. } = route;
        let (key_page, is_health_check, audited_failures) =
            (route.key_page, route.is_health_check, route.audited_failures);
        let filter = MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::GET);
        let meter = app.meters().route(path, method.as_str());
        let guard = RouteGuard {
            app: app.clone(),
            access,
            route: path,
            audited,
            audited_failures,
            meter,
            key_page,
            is_health_check,
        };
        let idempotency = replays_responses.then(|| Arc::new(Idempotency::new(app, path)));
        let endpoint = Arc::new(Endpoint { app: app.clone(), guard, idempotency, handler, adds_success_flag });
        let serve = tower::service_fn(move |request| {
            let response = endpoint.clone().serve(request);
            async move { Ok::<_, Infallible>(response.await) }
        });
        router.route(path, MethodRouter::new().on_service(filter, serve))
    })
}

/// A route being served, with the middleware that all routes share.
struct Endpoint {
    app: App,
    guard: RouteGuard,
    idempotency: Option<Arc<Idempotency>>,
    handler: ErasedHandler,
    adds_success_flag: bool,
}

impl Endpoint {
    /// Answers a request: first the guard, then the idempotency middleware if the route uses it, then the handler.
    async fn serve(self: Arc<Self>, request: Request) -> Response {
        let endpoint = self.clone();
        let response = self.guard.serve(request, move |request| endpoint.handle(request)).await;
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
    let mut flagged = problem.with("success", false).into_response();
    for (name, value) in response.headers() {
        flagged.headers_mut().entry(name).or_insert_with(|| value.clone());
    }
    flagged
}
