//! A train of thought as tool state: revised, branched, exported to another hub, and rolled back.
//!
//! The well-known MCP tool "sequential thinking" as two functions that share one state.
//! `cargo run -p toolhub --example sequential_thinking`

use std::{error::Error, fmt};

use toolhub::{ContextId, HistoryEvent, prelude::*};

/// Think one step further about a problem that takes several. Number your thoughts; say early how many you will need, and
/// more when it turns out so. Revise an earlier thought when you know better, or branch off from one to try another way.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Thought {
    /// What you think at this step.
    thought: String,
    /// The number of this thought.
    #[schemars(range(min = 1))]
    thought_number: u32,
    /// How many thoughts you expect to need.
    #[schemars(range(min = 1))]
    total_thoughts: u32,
    /// Whether another thought is to follow.
    next_thought_needed: bool,
    /// Whether this revises an earlier thought.
    #[serde(default)]
    is_revision: bool,
    /// Which thought it revises.
    #[serde(default)]
    revises_thought: Option<u32>,
    /// The thought this branches off from.
    #[serde(default)]
    branch_from_thought: Option<u32>,
    /// The name of the branch this thought belongs to.
    #[serde(default)]
    branch_id: Option<String>,
}

/// The state: every thought, in order.
#[derive(Default, Serialize, Deserialize)]
struct Thoughts {
    history: Vec<Thought>,
}

impl ToolState for Thoughts {
    const NAME: &'static str = "thoughts";
}

/// The output after each thought.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    thought_number: u32,
    total_thoughts: u32,
    next_thought_needed: bool,
    branches: Vec<String>,
    thought_history_length: usize,
}

async fn think(mut thought: Thought, mut thoughts: State<Thoughts>) -> Result<Summary, ToolError> {
    thoughts.validate(&thought)?;
    // A number beyond the total raises the total.
    thought.total_thoughts = thought.total_thoughts.max(thought.thought_number);
    let mut summary = Summary {
        thought_number: thought.thought_number,
        total_thoughts: thought.total_thoughts,
        next_thought_needed: thought.next_thought_needed,
        ..Summary::default()
    };
    thoughts.history.push(thought);
    (summary.branches, summary.thought_history_length) = (thoughts.branches(), thoughts.history.len());
    Ok(summary)
}

async fn show_thoughts(_: NoArguments, thoughts: State<Thoughts>) -> Result<String, ToolError> {
    Ok(thoughts.history.iter().map(Thought::to_string).collect::<Vec<_>>().join("\n"))
}

impl Thoughts {
    /// Checks what no schema can express: whether a thought fits the earlier ones. Each refusal tells the model what to do.
    fn validate(&self, thought: &Thought) -> Result<(), ToolError> {
        let exists = |number| self.history.iter().any(|earlier| earlier.thought_number == number);
        let refused = |text: String| Err(ToolError::refused(text));
        match thought.revises_thought {
            None if thought.is_revision => return refused("say with `revisesThought` which thought you revise".into()),
            Some(number) if !exists(number) => {
                return refused(format!("there is no thought {number} to revise; {}", self.last_number_hint()));
            }
            _ => {}
        }
        match (thought.branch_from_thought, &thought.branch_id) {
            (Some(_), None) => refused("give the branch a name with `branchId`".into()),
            (Some(number), _) if !exists(number) => {
                refused(format!("there is no thought {number} to branch off from; {}", self.last_number_hint()))
            }
            (None, Some(id)) if !self.branches().contains(id) => {
                refused(format!("the branch `{id}` is new; say with `branchFromThought` where it begins"))
            }
            _ => Ok(()),
        }
    }

    fn last_number_hint(&self) -> String {
        match self.history.iter().map(|thought| thought.thought_number).max() {
            None => "nothing was thought yet".into(),
            Some(last) => format!("the last one is {last}"),
        }
    }

    /// The names of all branches, in order of creation.
    fn branches(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for id in self.history.iter().filter_map(|thought| thought.branch_id.as_ref()) {
            if !names.contains(id) {
                names.push(id.clone());
            }
        }
        names
    }
}

impl fmt::Display for Thought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} ", self.thought_number, self.total_thoughts)?;
        if let Some(number) = self.revises_thought {
            write!(f, "(instead of {number}) ")?;
        }
        if let Some(branch) = &self.branch_id {
            write!(f, "({branch}) ")?;
        }
        f.write_str(&self.thought)
    }
}

/// A hub with both tools and an empty store.
async fn new_hub() -> Result<ToolHub, Box<dyn Error>> {
    let show = tool("show_thoughts", show_thoughts).description("Show the whole train of thought.").read_only();
    Ok(ToolHub::builder().tool(tool("sequentialthinking", think)).tool(show).build().await?)
}

const THREAD: &str = "party";

/// Submits a thought with its number and the expected total, and prints the text for the model. `more` are further arguments.
async fn submit_thought(hub: &ToolHub, (number, total): (u32, u32), thought: &str, more: Value) -> Outcome {
    println!("> {thought}");
    let mut arguments = json!({"thought": thought, "thoughtNumber": number, "totalThoughts": total});
    arguments["nextThoughtNeeded"] = json!(number < total);
    if let (Value::Object(arguments), Value::Object(more)) = (&mut arguments, more) {
        arguments.extend(more);
    }
    let outcome = hub.call("sequentialthinking", arguments).thread(THREAD).await;
    println!("  {}", outcome.model_text());
    outcome
}

async fn print_thoughts(hub: &ToolHub) -> Result<String, CallError> {
    let text: String = hub.call("show_thoughts", json!({})).thread(THREAD).await.output_as()?;
    println!("{text}");
    Ok(text)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (me, thread) = (Tenant::default(), ThreadId::new(THREAD)?);
    let thoughts: ContextId = format!("{THREAD}/{}", Thoughts::NAME).parse()?;
    let hub = new_hub().await?;

    println!("## Three thoughts, and one that revises the second");
    submit_thought(&hub, (1, 3), "Twelve guests will come.", json!({})).await;
    submit_thought(&hub, (2, 3), "One cake is enough.", json!({})).await;
    submit_thought(&hub, (3, 3), "It is baked on Friday.", json!({"nextThoughtNeeded": true})).await;
    let revision = json!({"isRevision": true, "revisesThought": 2, "nextThoughtNeeded": true});
    let revised = submit_thought(&hub, (4, 3), "A cake is for eight, so two.", revision).await;
    assert_eq!(revised.output_as::<Summary>()?.total_thoughts, 4);

    println!("\n## A branch, to try another way");
    let branch = json!({"branchFromThought": 1, "branchId": "no-oven"});
    submit_thought(&hub, (5, 6), "We could buy ice cream.", branch).await;

    println!("\n## Invalid thoughts are refused, and leave the state unchanged");
    let unknown = json!({"isRevision": true, "revisesThought": 9});
    let refused = submit_thought(&hub, (6, 6), "The ninth thought was wrong.", unknown).await;
    assert_eq!((refused.error_kind(), refused.effect), (Some(ErrorKind::ToolRefused), Effect::None));
    submit_thought(&hub, (6, 6), "Or something else.", json!({"branchFromThought": 2})).await;
    // The schema requires numbers from 1, so this one does not reach the function.
    let refused = submit_thought(&hub, (0, 6), "Before everything else.", json!({})).await;
    assert_eq!(refused.error_kind(), Some(ErrorKind::ArgumentsInvalid));

    println!("\n## The whole train of thought");
    let before = print_thoughts(&hub).await?;

    println!("\n## The state is exported and continued in another hub");
    let saved = hub.state().export(&me, Some(&thread)).await?;
    drop(hub);
    let hub = new_hub().await?;
    hub.state().import(&me, &saved).await?;
    assert_eq!(print_thoughts(&hub).await?, before);
    let last = submit_thought(&hub, (6, 6), "Two cakes, and ice cream for the children.", json!({})).await;
    assert_eq!(last.output_as::<Summary>()?.thought_history_length, 6);

    println!("\n## The last five history entries");
    for entry in hub.state().history(&me, &thoughts, 5).await? {
        match entry.event {
            HistoryEvent::ExecutionStart { parameters } => println!("started: {}", parameters["thought"]),
            HistoryEvent::Update { version, .. } => println!("  wrote version {version}"),
            HistoryEvent::ExecutionSuccess { result_type } => println!("  succeeded, result: {result_type}"),
            HistoryEvent::ExecutionError { error, .. } => println!("  failed: {error}"),
            _ => {}
        }
    }

    println!("\n## Rollback to the fourth thought");
    // Each accepted thought is a version. A rollback creates a new version with the old content.
    let version = hub.state().rollback(&me, &thoughts, 4).await?;
    println!("version {version} has the content of version 4");
    let after = submit_thought(&hub, (5, 5), "And there are candles.", json!({})).await;
    assert!(after.output_as::<Summary>()?.branches.is_empty());
    print_thoughts(&hub).await?;
    Ok(())
}
