//! A coffee shop: look at the goods, fill the cart, order. Each tool depends on the one before it, in each thread separately, and
//! an order costs money, so it needs an approval, which the example itself gives.
//!
//! `cargo run -p toolhub --example coffee_shop`

use std::error::Error;

use toolhub::{
    Approval,
    events::{EventKind, Subscription},
    prelude::*,
};

/// What the shop sells, and for how many cents.
const GOODS: [(&str, u32); 3] = [("espresso", 250), ("latte", 390), ("tea", 280)];

fn price(name: &str) -> Result<u32, ToolError> {
    let found = GOODS.iter().find(|(goods, _)| *goods == name);
    found.map(|(_, cents)| *cents).ok_or_else(|| ToolError::refused(format!("we do not sell `{name}`")))
}

async fn show_goods(_: NoArguments) -> Result<Vec<&'static str>, ToolError> {
    Ok(GOODS.iter().map(|(name, _)| *name).collect())
}

/// Look at one of the goods.
#[derive(Deserialize, JsonSchema)]
struct GetGoods {
    /// Such as latte.
    name: String,
}

async fn get_goods(look: GetGoods) -> Result<Value, ToolError> {
    Ok(json!({"name": look.name, "cents": price(&look.name)?}))
}

/// A number of one of the goods.
#[derive(Serialize, Deserialize, JsonSchema)]
struct LineItem {
    /// Such as latte.
    name: String,
    #[schemars(range(min = 1, max = 20))]
    qty: u32,
}

#[derive(Default, Serialize, Deserialize)]
struct Cart {
    lines: Vec<LineItem>,
}
impl ToolState for Cart {
    const NAME: &'static str = "cart";
}

async fn add_to_cart(add: LineItem, mut cart: State<Cart>) -> Result<String, ToolError> {
    price(&add.name)?;
    let text = format!("{} × {} in the cart", add.qty, add.name);
    cart.lines.push(add);
    Ok(text)
}

async fn order(item: LineItem, mut cart: State<Cart>) -> Result<String, ToolError> {
    let LineItem { name, qty } = item;
    let Some(line) = cart.lines.iter_mut().find(|line| line.name == name && line.qty >= qty) else {
        return Err(ToolError::refused(format!("there are not {qty} × {name} in the cart")));
    };
    line.qty -= qty;
    let cents = price(&name)? * qty;
    Ok(format!("ordered {qty} × {name} for {}.{:02} €", cents / 100, cents % 100))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let hub = ToolHub::builder()
        .tool(tool("show_goods", show_goods).description("What the shop sells.").read_only())
        .tool(tool("get_goods", get_goods).read_only())
        .tool(
            tool("add_to_cart", add_to_cart)
                .description("Put something in the cart.")
                .additive()
                .after_any(["show_goods", "get_goods"]),
        )
        .tool(tool("order", order).description("Order something that is in the cart.").after("add_to_cart"))
        .rule(Rule::ask("order").reason("an order costs money"))
        .build()
        .await?;
    dependencies(&hub).await?;
    approvals(&hub).await?;
    grants(&hub).await
}

/// Each tool depends on the one before it, in each thread separately.
async fn dependencies(hub: &ToolHub) -> Result<(), Box<dyn Error>> {
    println!("Ann enters the shop. In her thread nothing has happened yet.");
    assert_eq!(print_available_tools(hub, "ann").await?, ["get_goods", "show_goods"]);
    let lattes = line_item("latte", 20);
    let early = call(hub, "add_to_cart", &lattes, "ann").await;
    assert_eq!(
        early.model_text(),
        "`add_to_cart` cannot be used yet. Call one of show_goods, get_goods successfully first."
    );
    let early = call(hub, "order", &lattes, "ann").await;
    assert_eq!(early.model_text(), "`order` cannot be used yet. Call add_to_cart successfully first.");
    assert_eq!(early.effect, Effect::None);

    println!("\nShe looks at the goods.");
    assert!(call(hub, "show_goods", &json!({}), "ann").await.is_success());
    assert_eq!(print_available_tools(hub, "ann").await?, ["add_to_cart", "get_goods", "show_goods"]);

    println!("\nShe fills her cart. A refused call does not count as done.");
    assert_eq!(call(hub, "add_to_cart", &line_item("beer", 1), "ann").await.model_text(), "we do not sell `beer`");
    assert_eq!(print_available_tools(hub, "ann").await?, ["add_to_cart", "get_goods", "show_goods"]);
    for goods in [lattes, line_item("tea", 20)] {
        assert!(call(hub, "add_to_cart", &goods, "ann").await.is_success());
    }
    assert_eq!(print_available_tools(hub, "ann").await?, ["add_to_cart", "get_goods", "order", "show_goods"]);

    println!("\nBen is another thread and starts from the beginning. To look at one thing is enough for him.");
    assert_eq!(print_available_tools(hub, "ben").await?, ["get_goods", "show_goods"]);
    assert_eq!(call(hub, "get_goods", &json!({"name": "tea"}), "ben").await.output["cents"], 280);
    assert_eq!(print_available_tools(hub, "ben").await?, ["add_to_cart", "get_goods", "show_goods"]);
    Ok(())
}

/// A denial, an approval with edited arguments, and a plain approval.
async fn approvals(hub: &ToolHub) -> Result<(), Box<dyn Error>> {
    println!("\nAnn's agent orders. The call waits until a person has answered.");
    let no = Answer::denied("there is milk for two", boss()?);
    let denied = order_and_answer(hub, &line_item("latte", 12), no).await?;
    assert_eq!(denied.error_kind(), Some(ErrorKind::ApprovalDenied));
    assert_eq!(denied.model_text(), "A person refused this call: there is milk for two");
    assert_eq!(denied.effect, Effect::None);

    println!("\nIt has not understood. The boss lowers the number, and the model is told.");
    let edited = order_and_answer(hub, &line_item("latte", 6), Answer::edited(line_item("latte", 2), boss()?)).await?;
    assert_eq!(edited.output, json!("ordered 2 × latte for 7.80 €"));
    assert!(edited.model_text().contains("A person changed the arguments of this call"));

    println!("\nTea is another matter: yes, this once.");
    let once = order_and_answer(hub, &line_item("tea", 1), Answer::new(ApprovalOutcome::ProceedOnce, boss()?)).await?;
    assert_eq!(once.output, json!("ordered 1 × tea for 2.80 €"));
    Ok(())
}

/// An approval that holds until it is revoked.
async fn grants(hub: &ToolHub) -> Result<(), Box<dyn Error>> {
    let tenant = Tenant::default();
    println!("\nThe boss is tired of being asked: always, for this tool in this thread.");
    let always = Answer::new(ApprovalOutcome::ProceedAlways, boss()?);
    assert!(order_and_answer(hub, &line_item("tea", 2), always).await?.is_success());

    println!("\nThe next order goes through by itself.");
    assert!(call(hub, "order", &line_item("tea", 3), "ann").await.is_success());

    println!("\nSuch an approval is a grant. Grants are listed, and can be revoked.");
    let [grant] = &hub.grants(&tenant).await?[..] else { return Err("there should be one grant".into()) };
    println!("  {}: {}, given by {} for the rule \"{}\"", grant.id, json!(grant.covers), grant.granted_by, grant.rule);
    hub.revoke_grant(&tenant, &grant.id).await?;
    println!("  revoked; grants left: {}", hub.grants(&tenant).await?.len());

    println!("\nNow an order asks again. This caller cannot wait for an approval, and gets an error immediately.");
    let arguments = line_item("tea", 3);
    let refused = hub.call("order", arguments.clone()).thread("ann").no_wait().await;
    println!("  order {arguments}: {}", refused.model_text());
    let approval = refused.error.as_ref().and_then(CallError::approval).ok_or("no approval was requested")?;

    println!("\nThe boss approves later. The same call, made again, uses that approval.");
    let yes = Answer::new(ApprovalOutcome::ProceedOnce, boss()?);
    hub.resolve_approval(&tenant, approval, yes).await?;
    assert!(call(hub, "order", &arguments, "ann").await.is_success());
    Ok(())
}

fn line_item(name: &str, qty: u32) -> Value {
    json!({"name": name, "qty": qty})
}

fn boss() -> Result<Caller, Box<dyn Error>> {
    Ok(Caller::new("boss")?)
}

async fn call(hub: &ToolHub, tool: &str, arguments: &Value, thread: &str) -> Outcome {
    let outcome = hub.call(tool, arguments.clone()).thread(thread).await;
    println!("  {tool} {arguments}: {}", indented_text(&outcome));
    outcome
}

/// Ann orders, and the boss answers. In a real program these are two components: an agent that calls, and a user interface that
/// subscribes to events.
async fn order_and_answer(hub: &ToolHub, arguments: &Value, answer: Answer) -> Result<Outcome, Box<dyn Error>> {
    let mut events = hub.subscribe();
    let running = hub.call("order", arguments.clone()).thread("ann").start();
    let approval = next_approval(hub, &mut events).await?;
    println!("  order {arguments}: waits");
    let why = approval.reason.as_deref().unwrap_or("no reason given");
    println!("    asked: may `{}` run with {}? ({why})", approval.tool, approval.arguments);
    println!("    {} answers: {}", answer.by, json!(answer.outcome));
    hub.resolve_approval(&Tenant::default(), approval.id, answer).await?;
    let outcome = running.await;
    println!("    the model reads: {}", indented_text(&outcome));
    Ok(outcome)
}

/// Waits for the next requested approval.
async fn next_approval(hub: &ToolHub, events: &mut Subscription) -> Result<Approval, Box<dyn Error>> {
    loop {
        if let EventKind::ApprovalRequested { approval_id, .. } = events.next().await.kind {
            return Ok(hub.approval(&Tenant::default(), approval_id).await?.ok_or("the approval no longer exists")?);
        }
    }
}

fn indented_text(outcome: &Outcome) -> String {
    outcome.model_text().replace('\n', "\n                     ")
}

/// Prints the tools available to a thread.
async fn print_available_tools(hub: &ToolHub, thread: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let names = hub.available_tools(StatusScope::Thread(&Tenant::default(), &ThreadId::new(thread)?)).await?;
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    println!("  available to {thread}: {}", names.join(", "));
    Ok(names)
}
