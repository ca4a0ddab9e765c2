//! Callers of many tenants at the same time, all with the same ids of requests: each gets its own answers, lists and events only.
//!
//! With `TOOLHUB_SOAK` set, 10,000 calls of 200 callers of 20 tenants run at the same time.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};
use toolhub_core::{
    CallContext, CancellationToken, HubChange, ResourceTemplate, Rule, SourceHandle, SourceLists, SourceReaders,
    ToolError, ToolName, dynamic, testing::TestSource,
};
use toolhub_server::{Scope, Server};
use toolhub_testkit::soak;

use crate::{
    support_api::{ApiFixture, EventReader, api_fixture},
    support_listener::{make_key, settings_with_keys},
    support_mcp::{McpClient, events, next, text},
};

const CHANGED: &str = "notifications/tools/list_changed";

/// A caller with one call.
struct Guest {
    client: McpClient,
    tenant: String,
    caller: String,
    /// What is in its arguments, its progress and the address of its resource.
    mark: String,
}

impl Guest {
    fn uri(&self) -> String {
        format!("{}://{}", self.tenant, self.mark)
    }
}

/// A source with resources of any name, whose addresses begin with its own.
async fn add_source(fixture: &ApiFixture, name: &str) -> SourceHandle {
    let (source, mut control) = TestSource::new(name);
    fixture.hub.add_source(Arc::new(source)).unwrap();
    let handle = control.handle().await;
    let reader = format!("{name}__resources-read");
    let read = dynamic(&reader, json!({"type": "object"}), |_: Value, _: CallContext| async {
        Ok::<_, ToolError>(json!({"contents": []}))
    });
    handle.replace_tools(vec![read.read_only().unlisted()]).await;
    handle.connected().await;
    let template = ResourceTemplate { uri_template: format!("{name}://{{id}}"), ..ResourceTemplate::default() };
    let readers = SourceReaders { resource: Some(ToolName::new(&reader).unwrap()), ..SourceReaders::default() };
    handle.replace_lists(SourceLists { templates: vec![template], readers, ..SourceLists::default() });
    handle
}

/// Checks that a caller sees the tool of its tenant and no other's.
async fn check_list(client: &McpClient, tenant: &str) {
    let names = client.names().await;
    let own: Vec<_> = names.iter().filter_map(|name| name.strip_prefix("own_")).collect();
    assert_eq!(own, [tenant]);
}

/// Makes a call and checks each message of its stream, which lasts until all calls have started.
async fn check_call(fixture: &ApiFixture, guest: &Guest) {
    let params = json!({"name": "whoami", "arguments": {"mark": guest.mark}, "_meta": {"progressToken": "p"}});
    let mut stream = guest.client.open_with(fixture, params).await;
    let mut received = String::new();
    while let Some(chunk) = stream.next_chunk().await {
        received.push_str(&chunk);
    }
    let mut messages = events(&received);
    let answer = messages.pop().expect("an answer");
    let said = json!([guest.tenant, guest.caller, guest.mark]);
    assert_eq!((&answer["id"], text(&answer["result"])), (&json!(1), said.to_string().as_str()), "{answer}");
    for message in messages {
        assert_eq!(message["params"]["message"], guest.mark, "{message}");
    }
}

/// Reads until the stream has brought the change of the guest's resource and of the list, and nothing else.
async fn check_events(guest: &Guest, stream: &mut EventReader) {
    let (mut is_updated, mut is_changed) = (false, false);
    while !(is_updated && is_changed) {
        let event = next(stream).await;
        if event["method"] == CHANGED {
            is_changed = true;
        } else {
            assert_eq!(event["params"]["uri"], guest.uri(), "{event}");
            is_updated = true;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_caller_gets_an_answer_a_list_or_an_event_of_another() {
    let (tenant_count, callers, calls) = soak((4_usize, 5_usize, 20_usize), (20, 10, 50));
    let total = tenant_count * callers * calls;
    let mut fixture = api_fixture().await;
    let tenants: Vec<String> = (0..tenant_count).map(|number| format!("t{number:02}")).collect();

    let (started, gate) = (Arc::new(Semaphore::new(0)), CancellationToken::new());
    let (begins, opened) = (started.clone(), gate.clone());
    let whoami = dynamic("whoami", json!({"type": "object"}), move |given: Value, cx: CallContext| {
        let (started, gate) = (begins.clone(), opened.clone());
        async move {
            let mark = given["mark"].as_str().unwrap_or_default().to_owned();
            cx.progress(&mark);
            started.add_permits(1);
            gate.cancelled().await;
            Ok::<_, ToolError>(json!(json!([cx.tenant().as_str(), cx.caller().as_str(), mark]).to_string()))
        }
    });
    let own = tenants.iter().map(|tenant| {
        dynamic(&format!("own_{tenant}"), json!({"type": "object"}), |_: Value, _: CallContext| async {
            Ok::<_, ToolError>(Value::Null)
        })
        .read_only()
    });
    fixture.hub.register_all(own.chain([whoami.read_only().timeout(Duration::from_secs(600))])).unwrap();
    let pairs = tenants.iter().flat_map(|own| tenants.iter().map(move |other| (own, other)));
    let change =
        pairs.filter(|(own, other)| own != other).fold(HubChange::replacing_policies(), |change, (own, other)| {
            change.rule(Rule::deny(format!("own_{own}")).caller(format!("{other}-*")))
        });
    fixture.hub.apply(change).await.unwrap();
    let mut sources = BTreeMap::new();
    for tenant in &tenants {
        sources.insert(tenant.clone(), add_source(&fixture, tenant).await);
    }
    let names =
        tenants.iter().flat_map(|tenant| (0..callers).map(move |number| (tenant, format!("{tenant}-{number}"))));
    let keys: Vec<_> = names
        .map(|(tenant, caller)| {
            let (setting, key) = make_key(&caller, tenant, &[Scope::ToolsRead, Scope::ToolsCall]);
            (tenant, caller, setting, key)
        })
        .collect();
    let settings = settings_with_keys(keys.iter().map(|(_, _, setting, _)| setting.clone()));
    fixture.router = Server::new(fixture.hub.clone(), fixture.store.clone(), settings).router();

    let begun = Instant::now();
    let mut guests = Vec::new();
    for (tenant, caller, _, key) in &keys {
        for number in 0..calls {
            let mut client = McpClient::modern(&fixture.router, "/mcp").key(key);
            let mark = format!("{caller}-{number}");
            let uri = format!("{tenant}://{mark}");
            let mut wanted = json!({"toolsListChanged": true, "resourceSubscriptions": [uri]});
            if number % 2 == 0 {
                client = client.initialize().await;
                client.result("resources/subscribe", json!({"uri": uri})).await;
                wanted = Value::Null;
            }
            let stream = client.listen(&fixture, wanted).await;
            guests.push((Guest { client, tenant: (*tenant).clone(), caller: caller.clone(), mark }, stream));
        }
    }
    let (set_up, begun, fixture) = (begun.elapsed(), Instant::now(), Arc::new(fixture));
    let (mut running, listing) = (JoinSet::new(), Arc::new(Semaphore::new(100)));
    for (guest, stream) in guests {
        let (fixture, listing) = (fixture.clone(), listing.clone());
        running.spawn(async move {
            check_call(&fixture, &guest).await;
            let _place = listing.acquire().await.unwrap();
            check_list(&guest.client, &guest.tenant).await;
            (guest, stream)
        });
    }
    tokio::select! {
        permits = started.acquire_many(u32::try_from(total).unwrap()) => permits.unwrap().forget(),
        Some(ended) = running.join_next() => panic!("ended before all have started: {:?}", ended.err()),
    }
    let all_started = begun.elapsed();
    gate.cancel();
    let mut guests = running.join_all().await;
    let (ended, begun) = (begun.elapsed(), Instant::now());

    for (guest, _) in &guests {
        sources[&guest.tenant].resource_updated(&guest.uri());
    }
    let marker = dynamic("marker", json!({"type": "object"}), |_: Value, _: CallContext| async {
        Ok::<_, ToolError>(Value::Null)
    });
    fixture.hub.register(marker).unwrap();
    for (guest, stream) in &mut guests {
        check_events(guest, stream).await;
    }
    println!(
        "{total} calls with id 1 of {} callers of {tenant_count} tenants: set up in {set_up:.1?}, all at the same time after \
         {all_started:.1?}, all answered after {ended:.1?}, all events after {:.1?}; nothing foreign",
        keys.len(),
        begun.elapsed(),
    );
}
