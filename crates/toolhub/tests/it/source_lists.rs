//! Prompts and resources of sources: merged lists, the calls that read them, and who hears of changes.

use std::collections::BTreeMap;

use toolhub::{
    CompletionTarget, ListRevisions, Prompt, ReadCall, Resource, ResourceTemplate, SourceHandle, SourceLists,
    SourceReaders, SubscribeError, ToolName,
    ids::Tenant,
    prelude::*,
    testing::{AssertOutcome, ScriptStep, TestSource, TestSourceControl, scripted},
};

fn tool_name(name: &str) -> ToolName {
    ToolName::new(name).unwrap()
}

fn resource(uri: &str) -> Resource {
    Resource { uri: uri.into(), name: uri.into(), ..Resource::default() }
}

/// The lists of a source whose tools read all of it.
fn lists(source: &str, uris: &[&str], templates: &[&str], prompts: &[&str]) -> SourceLists {
    let template = |uri: &&str| ResourceTemplate { uri_template: (*uri).into(), ..ResourceTemplate::default() };
    let prompt = |name: &&str| (format!("{source}__{name}"), Prompt { name: (*name).into(), ..Prompt::default() });
    let reader = |method: &str| Some(tool_name(&format!("{source}__{method}")));
    SourceLists {
        prompts: prompts.iter().map(prompt).collect::<BTreeMap<_, _>>(),
        resources: uris.iter().map(|uri| resource(uri)).collect(),
        templates: templates.iter().map(template).collect(),
        readers: SourceReaders {
            resource: reader("resources-read"),
            prompt: reader("prompts-get"),
            completion: reader("completion-complete"),
        },
    }
}

/// A hub with the sources `a` and `b`.
async fn hub() -> (ToolHub, [SourceHandle; 2], [TestSourceControl; 2]) {
    let ((a, mut a_control), (b, mut b_control)) = (TestSource::new("a"), TestSource::new("b"));
    let hub = ToolHub::builder().source(a).source(b).build().await.unwrap();
    let handles = [a_control.handle().await, b_control.handle().await];
    (hub, handles, [a_control, b_control])
}

fn uris(hub: &ToolHub) -> Vec<String> {
    hub.lists().resources().iter().map(|resource| resource.uri.clone()).collect()
}

fn read(tool: &str, arguments: Value) -> Option<ReadCall> {
    Some(ReadCall { tool: tool_name(tool), arguments })
}

#[tokio::test]
async fn lists_are_merged_and_a_uri_that_two_sources_have_belongs_to_the_first() {
    let (hub, [a, b], _) = hub().await;
    // The order in which they come does not matter.
    b.replace_lists(lists("b", &["x://1", "x://2"], &["t://{id}"], &["hello"]));
    a.replace_lists(lists("a", &["x://1", "x://1"], &["t://{id}"], &["hello"]));
    assert_eq!(uris(&hub), ["toolhub://sources/b/x://1", "x://1", "x://2"]);
    let lists = hub.lists();
    let templates: Vec<_> = lists.templates().iter().map(|template| template.uri_template.as_str()).collect();
    assert_eq!(templates, ["t://{id}", "toolhub://sources/b/t://{id}"]);
    let prompts: Vec<_> = lists.prompts().iter().map(|prompt| prompt.name.as_str()).collect();
    assert_eq!(prompts, ["a__hello", "b__hello"]);

    let cases = [
        ("x://1", "a__resources-read", "x://1"),
        ("toolhub://sources/b/x://1", "b__resources-read", "x://1"),
        ("x://2", "b__resources-read", "x://2"),
        ("t://7", "a__resources-read", "t://7"),
        ("toolhub://sources/b/t://7", "b__resources-read", "t://7"),
    ];
    for (uri, tool, original) in cases {
        assert_eq!(lists.read_resource(uri), read(tool, json!({"uri": original})), "{uri}");
    }
    assert_eq!(lists.read_resource("y://1"), None, "it could be of either");
    let arguments = json!({"who": "x"}).as_object().cloned().unwrap();
    let get = read("b__prompts-get", json!({"name": "hello", "arguments": {"who": "x"}}));
    assert_eq!(lists.get_prompt("b__hello", arguments), get);
    assert_eq!(lists.get_prompt("hello", Default::default()), None);
    let argument = || json!({"name": "id", "value": "1"});
    let complete = json!({"ref": {"type": "ref/resource", "uri": "t://{id}"}, "argument": argument()});
    let template = CompletionTarget::ResourceTemplate("toolhub://sources/b/t://{id}");
    assert_eq!(lists.complete(template, argument(), None), read("b__completion-complete", complete));
    let complete =
        json!({"ref": {"type": "ref/prompt", "name": "hello"}, "argument": argument(), "context": {"arguments": {}}});
    let completed = lists.complete(CompletionTarget::Prompt("a__hello"), argument(), Some(json!({"arguments": {}})));
    assert_eq!(completed, read("a__completion-complete", complete));

    hub.remove_source("a").await.unwrap();
    assert_eq!(uris(&hub), ["x://1", "x://2"]);
    assert_eq!(hub.lists().read_resource("y://1"), read("b__resources-read", json!({"uri": "y://1"})), "the only one");
}

#[tokio::test]
async fn each_list_has_a_revision_and_its_changes_are_heard() {
    let (hub, [a, _b], _) = hub().await;
    let mut watch = hub.watch_lists();
    a.replace_lists(lists("a", &["x://1"], &[], &[]));
    let revisions = ListRevisions { prompts: 0, resources: 1, templates: 0 };
    assert_eq!((watch.changed().await, hub.lists().revisions()), (Some(revisions), revisions));
    a.replace_lists(lists("a", &["x://1"], &[], &[]));
    a.replace_lists(lists("a", &["x://1"], &[], &["hello"]));
    a.replace_lists(lists("a", &["x://1"], &["t://{id}"], &["hello"]));
    let revisions = ListRevisions { prompts: 1, resources: 1, templates: 1 };
    assert_eq!(watch.changed().await, Some(revisions));
    // Without a tool that reads them, nothing can be offered.
    let unreadable = SourceLists { readers: SourceReaders::default(), ..lists("a", &["x://1"], &[], &["hello"]) };
    a.replace_lists(unreadable);
    assert_eq!((uris(&hub).len(), hub.lists().prompts().len()), (0, 0));
}

#[tokio::test]
async fn a_resource_is_read_by_a_call_of_an_unlisted_tool() {
    let (hub, [a, _b], _) = hub().await;
    let contents = json!({"contents": [{"uri": "x://1", "text": "hello"}]});
    let (reader, _) = scripted("a__resources-read", [ScriptStep::Return(contents.clone())]);
    a.replace_tools(vec![reader.read_only().unlisted()]).await;
    a.connected().await;
    a.replace_lists(lists("a", &["x://1"], &[], &[]));
    let ReadCall { tool, arguments } = hub.lists().read_resource("x://1").unwrap();
    let outcome = hub.call(tool.as_str(), arguments.clone()).await;
    assert_eq!(outcome.assert_success(), &contents);
    a.disconnected("it went away");
    assert_eq!(uris(&hub), ["x://1"], "still listed");
    hub.call(tool.as_str(), arguments).await.assert_error(ErrorKind::ToolUnavailable);
}

#[tokio::test]
async fn who_subscribes_to_a_resource_hears_of_its_changes() {
    let (hub, [a, b], [control, _]) = hub().await;
    assert_eq!(hub.subscribe_resource(&Tenant::default(), "x://1").err(), Some(SubscribeError::NotFound));
    a.replace_lists(lists("a", &["x://1", "x://2"], &[], &[]));
    b.replace_lists(lists("b", &["x://1"], &[], &[]));
    let mut first = hub.subscribe_resource(&Tenant::default(), "x://1").unwrap();
    let mut second = hub.subscribe_resource(&Tenant::default(), "x://1").unwrap();
    let mut of_b = hub.subscribe_resource(&Tenant::default(), "toolhub://sources/b/x://1").unwrap();
    a.resource_updated("x://1");
    a.resource_updated("x://2");
    assert!(first.changed().await && second.changed().await);
    b.resource_updated("x://1");
    assert!(of_b.changed().await);
    let other = hub.subscribe_resource(&Tenant::default(), "x://2").unwrap();
    drop(first);
    drop(second);
    drop(other);
    let watched: Vec<_> = control.actions().into_iter().filter(|action| action.starts_with("watch")).collect();
    let both = "watch x://1 x://2";
    assert_eq!(watched, ["watch x://1", "watch x://1", both, both, "watch x://2", "watch "]);
    let many: Vec<String> = (0..1_001).map(|number| format!("x://{number}")).collect();
    a.replace_lists(lists("a", &many.iter().map(String::as_str).collect::<Vec<_>>(), &[], &[]));
    let kept: Vec<_> =
        many[..1_000].iter().map(|uri| hub.subscribe_resource(&Tenant::default(), uri).unwrap()).collect();
    assert_eq!(hub.subscribe_resource(&Tenant::default(), "x://1000").err(), Some(SubscribeError::TooMany));
    // Another tenant still gets its share.
    let other = Tenant::new("other").unwrap();
    assert!(hub.subscribe_resource(&other, "x://1000").is_ok());
    drop(kept);
}

#[tokio::test]
async fn a_prompt_belongs_to_the_source_of_its_name_and_the_scheme_of_the_hub_to_none() {
    let (hub, [a, _], [a_control, _]) = hub().await;
    let prompts = |hub: &ToolHub| hub.lists().prompts().iter().map(|prompt| prompt.name.clone()).collect::<Vec<_>>();
    let all =
        || lists("a", &["x://1", "toolhub://artifacts/1"], &["Toolhub://{+any}", "{+any}"], &["b__hello", "hello"]);
    let left_out = a.replace_lists(all());
    assert_eq!(
        left_out,
        [
            "the resource `toolhub://artifacts/1` is left out: `toolhub://` is reserved for the hub",
            "the resource `Toolhub://{+any}` is left out: `toolhub://` is reserved for the hub",
        ]
    );
    assert_eq!((prompts(&hub), uris(&hub)), (vec!["a__b__hello".into(), "a__hello".into()], vec!["x://1".into()]));
    assert_eq!(hub.lists().read_resource("toolhub://artifacts/2"), None);
    // A source that comes later has its names at once.
    let (long, mut control) = TestSource::new("a__b");
    hub.add_source(std::sync::Arc::new(long)).unwrap();
    assert_eq!(prompts(&hub), ["a__hello"]);
    assert_eq!(a_control.actions(), ["refresh"]);
    assert_eq!(a.replace_lists(all())[0], "the prompt `a__b__hello` is left out: its name is reserved for `a__b`");
    control.handle().await.replace_lists(lists("a__b", &[], &[], &["hello"]));
    let call = hub.lists().get_prompt("a__b__hello", Default::default()).unwrap();
    assert_eq!(call.tool.as_str(), "a__b__prompts-get");
}

#[tokio::test]
async fn of_the_templates_that_fit_the_most_specific_one_counts() {
    let (hub, [a, b], _) = hub().await;
    a.replace_lists(lists("a", &[], &["{+any}", "doc://{id}"], &[]));
    b.replace_lists(lists("b", &[], &["doc://b-{id}", "z://{id}"], &[]));
    for (uri, tool) in [("doc://b-1", "b__"), ("doc://c-1", "a__"), ("z://1", "b__"), ("y://1", "a__")] {
        let call = hub.lists().read_resource(uri).unwrap();
        assert!(call.tool.as_str().starts_with(tool), "{uri}: {call:?}");
    }
}
