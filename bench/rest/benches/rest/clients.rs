//! The two clients: bare reqwest, and a REST tool of a hub. Both parse the response to a JSON value.

use std::{net::SocketAddr, sync::Arc};

use serde_json::{Value, json};
use toolhub::{BoxFuture, ToolHub, rest::Rest};

pub(crate) trait Client: Send + Sync {
    /// Sends one request and reads the response.
    fn send(&self) -> BoxFuture<'_, ()>;
}

struct ReqwestClient {
    client: reqwest::Client,
    url: String,
    post: bool,
}

/// Bare reqwest, without a proxy.
pub(crate) fn baseline_client(address: SocketAddr, post: bool) -> Arc<dyn Client> {
    // reqwest needs a crypto provider even for plain HTTP. It may already be installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    Arc::new(ReqwestClient { client, url: format!("http://{address}/v1/de/now"), post })
}

impl Client for ReqwestClient {
    fn send(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let request = match self.post {
                false => self.client.get(format!("{}?city=Bad%20Ems", self.url)),
                true => {
                    let body = json!({"city": "Bad Ems"}).to_string();
                    self.client.post(&self.url).header("content-type", "application/json").body(body)
                }
            };
            let bytes = request.send().await.unwrap().error_for_status().unwrap().bytes().await.unwrap();
            let response: Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(response["now"]["celsius"], json!(7.5));
        })
    }
}

struct HubClient(ToolHub);

/// A REST tool, called through a hub.
pub(crate) async fn hub_client(address: SocketAddr, post: bool) -> Arc<dyn Client> {
    let (method, url) = (if post { "POST" } else { "GET" }, format!("http://{address}/v1/{{country}}/now"));
    let text = json!({"type": "string"});
    let parameters =
        json!({"type": "object", "properties": {"country": text, "city": text}, "required": ["country", "city"]});
    let weather = Rest::new(method, url).allow_host("127.0.0.1").tool_with("weather", parameters);
    Arc::new(HubClient(ToolHub::builder().tool(weather).build().await.unwrap()))
}

impl Client for HubClient {
    fn send(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let outcome = self.0.call("weather", json!({"country": "de", "city": "Bad Ems"})).await;
            assert_eq!(outcome.output["now"]["celsius"], json!(7.5), "{outcome:?}");
        })
    }
}
