//! Where arguments go in a request, and how they are written there.
//!
//! Plain values, said by an owner or made of an OpenAPI document; `plan.rs` reads them.

use serde_json::Value;

/// A part of a request an argument may go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ParameterLocation {
    /// A `{name}` in the path.
    Path,
    /// A pair of the query.
    Query,
    /// A header.
    Header,
    /// A pair of the `Cookie` header.
    Cookie,
}

/// How a list or an object is written, in the words of OpenAPI. A plain value is written the same in most of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Style {
    /// `a,b`; for paths and headers.
    Simple,
    /// `.a.b`; for paths.
    Label,
    /// `;name=a;name=b`; for paths.
    Matrix,
    /// `name=a&name=b`, or `name=a,b`; for queries and cookies.
    Form,
    /// `name=a%20b`; for queries.
    SpaceDelimited,
    /// `name=a%7Cb`; for queries.
    PipeDelimited,
    /// `name[member]=a`, at any depth, and `name[0]=a` for lists; for queries.
    DeepObject,
    /// The value as JSON text; for every place.
    Json,
}

/// That an argument goes to a place of the request, and how it is written there.
///
/// ```
/// use toolhub_connect::rest::{Parameter, Rest, Style};
///
/// let pets = Rest::get("https://pets.example/v1/owners/{id}/pets")
///     .parameter(Parameter::path("id").argument("owner"))
///     .parameter(Parameter::query("tags").style(Style::PipeDelimited).explode(false));
/// assert!(pets.problems().is_empty());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parameter {
    /// Where it goes.
    pub location: ParameterLocation,
    /// Its name there.
    pub name: String,
    /// The argument; its own name where nothing else is said.
    pub argument: String,
    /// How it is written.
    pub style: Style,
    /// Whether each member of a list or an object is a pair of its own.
    pub explode: bool,
}

impl Parameter {
    /// An argument that stands for `{name}` in the path, written `simple`.
    pub fn path(name: impl Into<String>) -> Self {
        Self::new(ParameterLocation::Path, name)
    }

    /// A pair of the query, written `form`, exploded.
    pub fn query(name: impl Into<String>) -> Self {
        Self::new(ParameterLocation::Query, name)
    }

    /// A header, written `simple`.
    pub fn header(name: impl Into<String>) -> Self {
        Self::new(ParameterLocation::Header, name)
    }

    /// A cookie, written `form`, exploded.
    pub fn cookie(name: impl Into<String>) -> Self {
        Self::new(ParameterLocation::Cookie, name)
    }

    /// A parameter at a place, written as OpenAPI says where nothing is said.
    pub fn new(place: ParameterLocation, name: impl Into<String>) -> Self {
        let name = name.into();
        let style = match place {
            ParameterLocation::Path | ParameterLocation::Header => Style::Simple,
            ParameterLocation::Query | ParameterLocation::Cookie => Style::Form,
        };
        Self { location: place, argument: name.clone(), name, style, explode: style == Style::Form }
    }

    /// The argument that goes there, where it has another name.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<String>) -> Self {
        self.argument = argument.into();
        self
    }

    /// How it is written. `explode` is then as OpenAPI says for the style, unless it is said afterwards.
    #[must_use]
    pub fn style(mut self, style: Style) -> Self {
        self.style = style;
        self.explode = matches!(style, Style::Form | Style::DeepObject);
        self
    }

    /// Whether each member of a list or an object is a pair of its own.
    #[must_use]
    pub fn explode(mut self, explode: bool) -> Self {
        self.explode = explode;
        self
    }
}

/// The body of a request. What is said of templates is in [`Rest`](super::Rest).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Body {
    /// JSON whose texts are templates. One that is nothing but `{argument}` becomes the argument itself, whatever its type:
    /// `Body::Json("{body}".into())` is one argument as the whole body.
    Json(Value),
    /// A form: names, and templates of their values.
    Form(Vec<(String, String)>),
    /// A form made of one argument: each member of that object is a field.
    FormFromArgument {
        /// The argument.
        argument: String,
        /// How fields are written where that is not as usual: plain values and lists as `form`, exploded; objects as JSON.
        fields: Vec<FormField>,
    },
    /// Text: one template.
    Text(String),
}

/// How one field of a form is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormField {
    /// The field.
    pub name: String,
    /// How it is written: `form`, `spaceDelimited`, `pipeDelimited`, `deepObject` or as JSON.
    pub style: Style,
    /// Whether each member of a list or an object is a pair of its own.
    pub explode: bool,
}
