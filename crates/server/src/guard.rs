//! Who may come in: decided for each route by the access the route names, before its handler is reached.

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::{
    app::App,
    problem::{Code, Problem},
    route::Access,
    scope::Principal,
    settings::Auth,
};

/// Lets a request through to its route, or answers it.
pub(crate) async fn authorize(
    State((app, access)): State<(App, Access)>,
    mut request: Request,
    next: Next,
) -> Response {
    let Access::Needs(scope) = access else { return next.run(request).await };
    let principal = match &app.settings().auth {
        Auth::Local => Principal::local(),
        Auth::Keys(_) => return Problem::new(Code::UNAUTHENTICATED, "keys are not built yet").into_response(),
    };
    if !principal.may(scope) {
        return Problem::new(Code::FORBIDDEN, format!("this needs the scope `{scope}`")).into_response();
    }
    request.extensions_mut().insert(principal);
    next.run(request).await
}
