//! Lists in the form in which widely used servers send them: by zod (draft 07), pydantic, the Go SDK, and by hand.

/// A name for each server, and the answer to `tools/list`.
pub(super) const LISTS: &[(&str, &str)] = &[
    ("everything", EVERYTHING),
    ("files", FILES),
    ("memory", MEMORY),
    ("thinking", THINKING),
    ("clock", CLOCK),
    ("repository", REPOSITORY),
    ("issues", ISSUES),
    ("browser", BROWSER),
    ("database", DATABASE),
];

/// Zod: draft 07, no annotations, an enum, an output schema.
const EVERYTHING: &str = r##"{"tools":[
{"name":"echo","title":"Echo Tool","description":"Echoes back the input","inputSchema":{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"message":{"type":"string","description":"Message to echo"}},"required":["message"],"additionalProperties":false},"execution":{"taskSupport":"forbidden"}},
{"name":"get-structured-content","description":"Returns structured content","inputSchema":{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"location":{"type":"string","enum":["New York","Chicago"]}},"required":["location"]},"outputSchema":{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"temperature":{"type":"number"},"conditions":{"type":"string"}},"required":["temperature","conditions"],"additionalProperties":false}},
{"name":"trigger-long-running-operation","description":"Demonstrates progress","inputSchema":{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"duration":{"type":"number","default":10},"steps":{"type":"number","default":5}}}},
{"name":"get-env","description":"Returns all environment variables","inputSchema":{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{}}}
],"_meta":{}}"##;

/// Annotations of every kind.
const FILES: &str = r##"{"tools":[
{"name":"read_text_file","title":"Read Text File","description":"Read the complete contents of a file as text.\n\nOnly works within allowed directories.","inputSchema":{"type":"object","properties":{"path":{"type":"string"},"tail":{"type":"number","description":"Last N lines"},"head":{"type":"number"}},"required":["path"],"$schema":"http://json-schema.org/draft-07/schema#"},"annotations":{"readOnlyHint":true},"outputSchema":{"type":"object","properties":{"content":{"type":"string"}},"required":["content"],"additionalProperties":false,"$schema":"http://json-schema.org/draft-07/schema#"}},
{"name":"edit_file","description":"Make line-based edits","inputSchema":{"type":"object","properties":{"path":{"type":"string"},"edits":{"type":"array","items":{"type":"object","properties":{"oldText":{"type":"string"},"newText":{"type":"string"}},"required":["oldText","newText"],"additionalProperties":false}},"dryRun":{"type":"boolean","default":false}},"required":["path","edits"]},"annotations":{"readOnlyHint":false,"idempotentHint":false,"destructiveHint":true}},
{"name":"create_directory","inputSchema":{"type":"object","properties":{"path":{"type":"string"}}},"annotations":{"readOnlyHint":false,"idempotentHint":true,"destructiveHint":false}}
]}"##;

/// Nested arrays of objects, and a tool without properties.
const MEMORY: &str = r##"{"tools":[
{"name":"create_entities","description":"Create multiple new entities in the knowledge graph","inputSchema":{"type":"object","properties":{"entities":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"entityType":{"type":"string"},"observations":{"type":"array","items":{"type":"string"}}},"required":["name","entityType","observations"],"additionalProperties":false}}},"required":["entities"],"additionalProperties":false}},
{"name":"read_graph","description":"Read the entire knowledge graph","inputSchema":{"type":"object","properties":{},"additionalProperties":false}}
]}"##;

/// A long description, and numbers with bounds.
const THINKING: &str = r##"{"tools":[
{"name":"sequentialthinking","description":"A detailed tool for dynamic and reflective problem-solving.\n\nWhen to use this tool:\n- Breaking down complex problems\n- Planning and design","inputSchema":{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"thought":{"type":"string"},"nextThoughtNeeded":{"anyOf":[{"type":"boolean"},{"type":"string"}]},"thoughtNumber":{"type":"integer","minimum":1,"maximum":9007199254740991}},"required":["thought","nextThoughtNeeded","thoughtNumber"]},"annotations":{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}}
],"resultType":"complete","ttlMs":0,"cacheScope":"private"}"##;

/// Pydantic: titles, `anyOf` with null, `$defs`.
const CLOCK: &str = r##"{"resultType":"complete","ttlMs":60000,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"mcp-time","version":"1"}},"tools":[
{"name":"get_current_time","description":"Get current time in a specific timezone","inputSchema":{"type":"object","properties":{"timezone":{"type":"string","description":"IANA timezone name"}},"required":["timezone"]}},
{"name":"plan","inputSchema":{"$defs":{"Slot":{"properties":{"start":{"format":"date-time","title":"Start","type":"string"},"kind":{"const":"slot","default":"slot","title":"Kind","type":"string"}},"required":["start"],"title":"Slot","type":"object"}},"properties":{"slots":{"items":{"$ref":"#/$defs/Slot"},"title":"Slots","type":"array"},"limit":{"anyOf":[{"exclusiveMinimum":0,"type":"integer"},{"type":"null"}],"default":null,"title":"Limit"}},"required":["slots"],"title":"planArguments","type":"object"}}
]}"##;

const REPOSITORY: &str = r##"{"tools":[
{"name":"git_status","description":"Shows the working tree status","inputSchema":{"properties":{"repo_path":{"title":"Repo Path","type":"string"}},"required":["repo_path"],"title":"GitStatus","type":"object"},"annotations":{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}},
{"name":"git_log","inputSchema":{"properties":{"repo_path":{"type":"string"},"max_count":{"default":10,"title":"Max Count","type":"integer"},"start_timestamp":{"anyOf":[{"type":"string"},{"type":"null"}],"default":null}},"required":["repo_path"],"type":"object"}}
]}"##;

/// Go: null in place of what is missing.
const ISSUES: &str = r##"{"tools":[
{"annotations":{"title":"Add comment to issue","readOnlyHint":false},"description":"Add a comment","inputSchema":{"type":"object","required":["owner","issue_number"],"properties":{"owner":{"type":"string"},"issue_number":{"type":"number","minimum":1},"labels":{"type":"array","items":{"type":"string"}}}},"name":"add_issue_comment","outputSchema":null},
{"name":"get_me","description":"","inputSchema":{"type":"object","properties":null}}
],"nextCursor":null}"##;

/// Dotted names, `$ref` into `definitions`, tuples.
const BROWSER: &str = r##"{"tools":[
{"name":"page.click","inputSchema":{"type":"object","properties":{"at":{"$ref":"#/definitions/Point"},"modifiers":{"type":"array","items":{"type":"string","enum":["Alt","Shift"]},"uniqueItems":true}},"required":["at"],"definitions":{"Point":{"type":"array","items":[{"type":"number"},{"type":"number"}],"additionalItems":false,"minItems":2}}}}
]}"##;

/// Recursive, and dependencies between properties.
const DATABASE: &str = r##"{"tools":[
{"name":"query","inputSchema":{"$schema":"http://json-schema.org/draft-04/schema#","id":"urn:query","type":"object","properties":{"filter":{"$ref":"urn:query#/definitions/Filter"},"limit":{"type":"integer","minimum":0,"exclusiveMinimum":true},"after":{"type":"string"}},"dependencies":{"after":["limit"]},"definitions":{"Filter":{"type":"object","properties":{"and":{"type":"array","items":{"$ref":"#/definitions/Filter"}},"field":{"type":"string","pattern":"^[a-z_]+$"}}}}}}
]}"##;
