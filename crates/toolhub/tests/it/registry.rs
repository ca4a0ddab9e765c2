//! Registration of tools: what is accepted, and how tools are added and removed.

use std::sync::Arc;

use toolhub::{
    Kind, RegistryError,
    prelude::*,
    status::ToolStatus,
    testing::{AssertOutcome, EventRecorder, scripted},
};

use crate::shop_tools::{add, add_to_cart, shop_hub};

async fn build_error(tools: impl IntoIterator<Item = ToolBuilder>) -> String {
    match ToolHub::builder().tools(tools).build().await {
        Ok(_) => panic!("the hub was built"),
        Err(error) => error.to_string(),
    }
}

fn scripted_tool(name: &str) -> ToolBuilder {
    scripted(name, []).0
}

#[tokio::test]
async fn what_cannot_work_is_refused_with_the_reason() {
    let twice = build_error([tool("add", add), tool("add", add)]).await;
    assert_eq!(twice, "there is a tool named `add` already; unregister it first, or choose another name");

    assert!(build_error([tool("add it", add)]).await.contains("contains ' '"));

    let unknown = build_error([scripted_tool("show_goods"), scripted_tool("order").after("show_good")]).await;
    assert_eq!(unknown, "`order` depends on `show_good`, which is not registered; did you mean `show_goods`?");

    let circle = build_error([
        scripted_tool("a").after("b"),
        scripted_tool("b").after_any(["c"]),
        scripted_tool("c").after("a"),
    ])
    .await;
    assert!(circle.starts_with("these tools depend on each other, so none could ever run: "), "{circle}");
    assert!(circle.contains("a → b → c → a") || circle.contains("b → c → a → b") || circle.contains("c → a → b → c"));
    assert!(build_error([scripted_tool("a").after("a")]).await.contains("a → a"));

    let nothing = build_error([scripted_tool("a").after_any(Vec::<&str>::new())]).await;
    assert!(nothing.contains("empty list of tools"), "{nothing}");
    assert!(
        build_error([scripted_tool("a").within(std::time::Duration::from_secs(1))])
            .await
            .contains("empty list of tools")
    );

    async fn greedy(
        _: NoArguments,
        _: State<crate::shop_tools::Cart>,
        _: State<crate::shop_tools::Cart>,
    ) -> Result<(), ToolError> {
        Ok(())
    }
    assert!(build_error([tool("greedy", greedy)]).await.contains("the state `cart` twice"));

    let missing_executor = build_error([ToolBuilder::new("ping", "grpc")]).await;
    assert!(missing_executor.contains(".executor(\"grpc\""), "{missing_executor}");

    let mismatch = build_error([tool("add", add).parameters(json!({"properties": {"a": {"type": "string"}}}))]).await;
    assert!(mismatch.contains("`add`") && mismatch.contains("`a`"), "{mismatch}");

    let output = build_error([tool("add", add).output_schema(json!({"type": 7}))]).await;
    assert!(output.contains("output schema of `add`"), "{output}");
}

#[tokio::test]
async fn every_problem_of_a_hub_is_reported_at_once() {
    let builder = ToolHub::builder().max_concurrency(0).tools([
        tool("export", add),
        tool("add it", add),
        scripted_tool("a").after("b"),
        scripted_tool("b").after("a"),
        scripted_tool("c").after_all(["nothing", "nowhere", "ping"]),
        ToolBuilder::new("ping", "grpc"),
        scripted_tool("d"),
        scripted_tool("d"),
    ]);
    let error = builder.build().await.map(drop).unwrap_err();
    let text = error.to_string();
    for part in [
        "`max_concurrency`",
        "no tool can be named `export`",
        "`export_tool`",
        "contains ' '",
        "depend on each other",
        "`nothing`",
        "`nowhere`",
        "kind `grpc`",
        "a tool named `d` already",
    ] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    assert!(!text.contains("`ping`, which is not registered"), "{text}");
    assert_eq!(error.into_problems().len(), 8, "{text}");
}

#[tokio::test]
async fn registering_many_is_all_or_nothing() {
    let hub = shop_hub().await;
    let before = hub.tools().len();
    let result = hub.register_all([scripted_tool("new"), scripted_tool("add")]);
    assert!(matches!(result, Err(RegistryError::Duplicate(name)) if name.as_str() == "add"));
    assert_eq!(hub.tools().len(), before);
    assert!(hub.get("new").is_none());
}

#[tokio::test]
async fn tools_registered_together_may_depend_on_each_other_in_any_order() {
    let hub = ToolHub::builder().build().await.unwrap();
    hub.register_all([
        scripted_tool("order").after_sequence(["show", "cart"]),
        scripted_tool("cart").after("show"),
        scripted_tool("show"),
    ])
    .unwrap();
    assert_eq!(hub.get("order").unwrap().definition.depends_on.names().count(), 2);
}

#[tokio::test]
async fn the_description_is_the_doc_comment_unless_one_is_given() {
    let hub =
        ToolHub::builder().tool(tool("add", add)).tool(tool("sum", add).description("Sum up.")).build().await.unwrap();
    let add = &hub.get("add").unwrap().definition;
    assert_eq!(add.description, "Add two numbers.");
    assert_eq!(add.parameters["properties"]["a"]["description"], "The first number.");
    assert!(add.parameters.get("description").is_none());
    assert_eq!(hub.get("sum").unwrap().definition.description, "Sum up.");
}

#[tokio::test]
async fn a_schema_by_hand_says_more_than_the_type_and_is_enforced() {
    let by_hand = json!({"properties": {"a": {"description": "Between 0 and 9.", "minimum": 0, "maximum": 9}}});
    let hub = ToolHub::builder().tool(tool("add", add).read_only().parameters(by_hand)).build().await.unwrap();
    assert!(hub.call("add", json!({"a": 9, "b": 1})).await.is_success());
    let outcome = hub.call("add", json!({"a": 10, "b": 1})).await;
    assert!(outcome.model_text().contains("a: must be at most 9"), "{}", outcome.model_text());
}

#[tokio::test]
async fn kinds_follow_from_what_a_function_asks_for() {
    let hub = shop_hub().await;
    assert_eq!(hub.get("add").unwrap().definition.kind, Kind::Stateless);
    assert_eq!(hub.get("add_to_cart").unwrap().definition.kind, Kind::Stateful);
    let wrong = hub.register_stateless(tool("cart", add_to_cart)).unwrap_err().to_string();
    assert_eq!(wrong, "`cart` cannot be registered: it is stateful; use `register_stateful`");
    hub.register_stateful(tool("cart", add_to_cart)).unwrap();
    hub.register_stateless(tool("plus", add)).unwrap();
    let wrong = hub.register_rest(tool("minus", add)).unwrap_err().to_string();
    assert_eq!(wrong, "`minus` cannot be registered: it is stateless; use `register_stateless`");
}

#[tokio::test]
async fn tools_are_listed_by_name_and_filtered_by_kind_tag_and_status() {
    let hub = shop_hub().await;
    hub.register(tool("zero", add).tag("math")).unwrap();
    let names = |filter: &ToolFilter| -> Vec<String> {
        hub.list(filter).iter().map(|tool| tool.definition.name.to_string()).collect()
    };
    assert_eq!(names(&ToolFilter::default()), ["add", "add_to_cart", "show_cart", "zero"]);
    assert_eq!(
        names(&ToolFilter { kind: Some(Kind::Stateful), ..ToolFilter::default() }),
        ["add_to_cart", "show_cart"]
    );
    assert_eq!(names(&ToolFilter { tag: Some("math".into()), ..ToolFilter::default() }), ["zero"]);
    hub.set_tool_status("zero", ToolStatus::Maintenance, None, None, StatusScope::Shared).await.unwrap();
    hub.register(tool("off", add).disabled("not today")).unwrap();
    let with_status = |status| names(&ToolFilter { status: Some(status), ..ToolFilter::default() });
    assert_eq!(with_status(ToolStatus::Available), ["add", "add_to_cart", "show_cart"]);
    assert_eq!(with_status(ToolStatus::Maintenance), ["zero"]);
    assert_eq!(with_status(ToolStatus::Unavailable), ["off"]);
    let kind = Some(Kind::Stateful);
    assert_eq!(names(&ToolFilter { kind, status: Some(ToolStatus::Maintenance), ..ToolFilter::default() }), [""; 0]);
    let usable = hub.available_tools(StatusScope::Shared).await.unwrap();
    assert_eq!(usable.iter().map(ToString::to_string).collect::<Vec<_>>(), with_status(ToolStatus::Available));
}

#[tokio::test]
async fn clearing_takes_all_tools_away() {
    let hub = shop_hub().await;
    assert_eq!(hub.clear().await, 3);
    assert!(hub.tools().is_empty());
}

#[tokio::test]
async fn a_tool_keeps_its_id_over_restarts_and_has_another_one_elsewhere() {
    let (one, two) = (shop_hub().await, shop_hub().await);
    let id = |hub: &ToolHub, name| hub.get(name).unwrap().definition.id.clone();
    assert_eq!(id(&one, "add"), id(&two, "add"));
    assert_ne!(id(&one, "add"), id(&one, "add_to_cart"));
}

#[tokio::test]
async fn a_hub_without_a_runtime_says_what_it_needs() {
    let built =
        std::thread::spawn(|| futures_util::FutureExt::now_or_never(ToolHub::builder().build())).join().unwrap();
    let Some(Err(error)) = built else { panic!("a hub was built without a runtime") };
    assert!(error.to_string().contains("tokio runtime"));
}

#[tokio::test]
async fn a_hub_begins_without_any_tool() {
    assert!(ToolHub::builder().build().await.unwrap().tools().is_empty());
}

#[tokio::test]
async fn every_format_lists_all_tools_by_name() {
    let hub = shop_hub().await;
    for format in Format::ALL {
        let exported = hub.export(format);
        let name = |tool: &Value| tool["name"].as_str().or(tool["function"]["name"].as_str()).map(String::from);
        let names: Vec<_> = exported.iter().filter_map(name).collect();
        assert_eq!(names, ["add", "add_to_cart", "show_cart"], "{format}");
        let text = serde_json::to_string(&exported).unwrap();
        assert!(text.contains("Add two numbers.") && !text.contains("$ref"), "{format}: {text}");
    }
}

#[tokio::test]
async fn an_unlisted_tool_is_in_no_list_and_is_called_like_any_other() {
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
    let hidden = scripted_tool("files__read_resource").unlisted();
    let builder = ToolHub::builder().tools([hidden, scripted_tool("files__read")]);
    let hub = builder.rule(Rule::deny("*").caller("guest")).build().await.unwrap();
    let mut recorder = EventRecorder::new(&hub);
    let names = |tools: Vec<Arc<toolhub::Tool>>| tools.iter().map(|tool| tool.definition.name.to_string()).collect();
    let lists: [Vec<String>; 4] = [
        names(hub.list(&ToolFilter::default())),
        names(hub.tools().list_toolset(&Toolset::all())),
        names(hub.shared_offer(&Toolset::all()).tools().to_vec()),
        hub.offer(&tenant, &thread).await.unwrap().names().iter().map(ToString::to_string).collect(),
    ];
    assert!(lists.iter().all(|list| *list == ["files__read"]), "{lists:?}");
    assert_eq!((hub.tools().len(), hub.export(Format::Mcp).len()), (1, 1));
    assert_eq!(hub.tools().suggest("files__read_resourc"), ["files__read"]);
    assert_eq!(hub.tool_statuses(StatusScope::Shared).await.unwrap().len(), 1);
    assert!(
        !hub.tool_status("files__read_resource", StatusScope::Thread(&tenant, &thread)).await.unwrap().should_rebind
    );
    let call = || hub.call("files__read_resource", json!({}));
    let ended = call().await;
    ended.assert_success();
    assert!(hub.call_record(&tenant, ended.id).await.unwrap().is_some());
    call().caller(Caller::new("guest").unwrap()).await.assert_error(ErrorKind::Forbidden);
    hub.set_tool_status("files__read_resource", ToolStatus::Maintenance, None, None, StatusScope::Shared)
        .await
        .unwrap();
    call().await.assert_error(ErrorKind::ToolMaintenance);
    let offer = hub.offer(&tenant, &thread).await.unwrap();
    call().from_offer(offer.tools()).await.assert_error(ErrorKind::ToolNotFound);
    hub.unregister("files__read_resource").await.unwrap();
    assert!(!recorder.names().contains(&"tool.unregistered"));
}
