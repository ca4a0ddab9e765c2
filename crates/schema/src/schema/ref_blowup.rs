//! Refuses schemas whose references multiply: a few lines that would take years to check.
//!
//! In: a document whose references stay inside it. Out: nothing, or which limit is passed.
//! The engine repeats the work behind a `$ref` for each way that leads to it, except around a circle that
//! goes through properties or items, where it remembers. What is counted here is what it would repeat.

use std::collections::HashMap;

use serde_json::Value;

use super::{
    SchemaError,
    refs::{AppliesTo, RefResolver, references, subschemas},
};

/// Different schemas that are referred to; the engine's recursion grows with them.
const MAX_REF_TARGETS: usize = 256;
/// Subschemas, when each `$ref` is replaced by what it means.
const MAX_EXPANDED_SUBSCHEMAS: usize = 50_000;
/// Subschemas that apply to one and the same value.
const MAX_SUBSCHEMAS_PER_VALUE: usize = 2_000;
/// Subschemas inside each other that apply to one and the same value: the engine's recursion for
/// arguments is this times their depth.
const MAX_NESTED_COMBINATIONS: usize = 16;

pub(super) fn check_references(root: &Value, refs: &RefResolver<'_>) -> Result<(), SchemaError> {
    let graph = RefGraph::new(root, refs)?;
    let mut same_value = PerValueCost { refs, known: HashMap::new() };
    for target in &graph.targets {
        for schema in reachable_subschemas(target) {
            same_value.measure(schema, 0)?;
        }
    }
    if graph.expanded_size() > MAX_EXPANDED_SUBSCHEMAS {
        return Err(SchemaError::TooComplex {
            what: "too many subschemas once each `$ref` is followed",
            most: MAX_EXPANDED_SUBSCHEMAS,
        });
    }
    Ok(())
}

/// A schema and everything inside it, without the definitions that only a reference reaches.
fn reachable_subschemas(schema: &Value) -> Vec<&Value> {
    let mut found = vec![schema];
    let mut at = 0;
    while let Some(schema) = found.get(at).copied() {
        let inside = subschemas(schema).into_iter();
        found.extend(inside.filter(|part| part.applies != AppliesTo::Nothing).map(|part| part.schema));
        at += 1;
    }
    found
}

/// Who refers to whom. The root is the first target.
struct RefGraph<'a> {
    targets: Vec<&'a Value>,
    sizes: Vec<usize>,
    /// For each target the targets referred to from its body, as often as they are.
    edges: Vec<Vec<usize>>,
}

impl<'a> RefGraph<'a> {
    fn new(root: &'a Value, refs: &RefResolver<'a>) -> Result<Self, SchemaError> {
        let mut graph = Self { targets: vec![root], sizes: Vec::new(), edges: Vec::new() };
        let mut places = HashMap::from([(node_id(root), 0)]);
        while let Some(from) = graph.targets.get(graph.edges.len()).copied() {
            let body = reachable_subschemas(from);
            let mut edges = Vec::new();
            for reference in body.iter().flat_map(|schema| references(schema)) {
                let lost = || SchemaError::UnresolvedRef(reference.to_owned());
                let target = refs.resolve(reference).ok_or_else(lost)?;
                let place = *places.entry(node_id(target)).or_insert(graph.targets.len());
                if place == graph.targets.len() {
                    graph.targets.push(target);
                }
                edges.push(place);
            }
            if graph.targets.len() > MAX_REF_TARGETS {
                return Err(SchemaError::TooComplex {
                    what: "too many different `$ref` targets",
                    most: MAX_REF_TARGETS,
                });
            }
            graph.sizes.push(body.len());
            graph.edges.push(edges);
        }
        Ok(graph)
    }

    /// How many subschemas there are from the root when each `$ref` outside a circle is unfolded.
    fn expanded_size(&self) -> usize {
        let reach: Vec<Vec<bool>> = (0..self.targets.len()).map(|from| self.reachable_from(from)).collect();
        self.expanded_size_from(0, &reach, &mut vec![None; self.targets.len()])
    }

    fn expanded_size_from(&self, at: usize, reach: &[Vec<bool>], known: &mut [Option<usize>]) -> usize {
        if let Some(size) = known[at] {
            return size;
        }
        let mut size = self.sizes[at];
        for &next in &self.edges[at] {
            let circle = reach[next][at];
            let more = if circle { 1 } else { self.expanded_size_from(next, reach, known) };
            size = size.saturating_add(more);
        }
        known[at] = Some(size);
        size
    }

    fn reachable_from(&self, from: usize) -> Vec<bool> {
        let mut seen = vec![false; self.targets.len()];
        seen[from] = true;
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            for &next in &self.edges[at] {
                if !std::mem::replace(&mut seen[next], true) {
                    open.push(next);
                }
            }
        }
        seen
    }
}

/// How many subschemas apply to one value, and how deep they are inside each other.
struct PerValueCost<'a> {
    refs: &'a RefResolver<'a>,
    /// `None` while the schema is being measured: meeting it again then means a circle.
    known: HashMap<usize, Option<(usize, usize)>>,
}

impl PerValueCost<'_> {
    fn measure(&mut self, schema: &Value, depth: usize) -> Result<(usize, usize), SchemaError> {
        match self.known.get(&node_id(schema)) {
            Some(Some(measured)) => return Ok(*measured),
            Some(None) => return Err(circular_ref(schema)),
            None => {}
        }
        if depth > MAX_NESTED_COMBINATIONS {
            return Err(too_deep());
        }
        self.known.insert(node_id(schema), None);
        let (mut size, mut height) = (1_usize, 0);
        let here = |applies| matches!(applies, AppliesTo::SameValue | AppliesTo::Branch);
        let inside = subschemas(schema).into_iter().filter(|part| here(part.applies));
        let referred = references(schema).filter_map(|reference| self.refs.resolve(reference));
        let next: Vec<&Value> = inside.map(|part| part.schema).chain(referred).collect();
        for schema_here in next {
            let measured = self.measure(schema_here, depth + 1);
            // The circle is best named by a reference in it, not by the schema that holds it.
            let (more, below) = measured.map_err(|error| match error {
                SchemaError::CircularRef(name) if name.is_empty() => circular_ref(schema),
                other => other,
            })?;
            size = size.saturating_add(more);
            height = height.max(below + 1);
        }
        if size > MAX_SUBSCHEMAS_PER_VALUE {
            return Err(SchemaError::TooComplex {
                what: "too many subschemas for one value",
                most: MAX_SUBSCHEMAS_PER_VALUE,
            });
        }
        if height > MAX_NESTED_COMBINATIONS {
            return Err(too_deep());
        }
        self.known.insert(node_id(schema), Some((size, height)));
        Ok((size, height))
    }
}

fn circular_ref(schema: &Value) -> SchemaError {
    SchemaError::CircularRef(references(schema).next().unwrap_or_default().to_owned())
}

fn too_deep() -> SchemaError {
    SchemaError::TooComplex { what: "too many combinations inside each other", most: MAX_NESTED_COMBINATIONS }
}

/// Values of one document that stay where they are, so the place is the identity.
fn node_id(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};

    #[track_caller]
    fn check(schema: &Value, expected: &str) {
        let got = match check_references(schema, &RefResolver::new(schema)) {
            Ok(()) => "fine".to_owned(),
            Err(error) => format!("{error:?}"),
        };
        assert!(got.contains(expected), "{got} instead of {expected}");
    }

    /// `$defs` in which each definition uses the next one twice.
    fn doubling(levels: usize, wrap: fn(Value) -> Value) -> Value {
        let mut defs = Map::new();
        for level in 0..levels {
            let next = wrap(json!({"$ref": format!("#/$defs/d{}", level + 1)}));
            defs.insert(format!("d{level}"), json!({"allOf": [next, next]}));
        }
        defs.insert(format!("d{levels}"), json!({"type": "string"}));
        json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": defs})
    }

    #[test]
    fn references_that_double_at_each_step_are_refused_with_or_without_properties_between() {
        check(&doubling(3, |next| next), "fine");
        check(&doubling(12, |next| next), "Tangled");
        check(&doubling(5, |next| json!({"properties": {"x": next}})), "fine");
        check(&doubling(40, |next| json!({"properties": {"x": next}})), "once each `$ref` is followed");
    }

    #[test]
    fn a_circle_needs_a_property_or_an_item_on_its_way() {
        let tree = json!({"type": "object", "properties": {"children": {"items": {"$ref": "#"}}}});
        check(&tree, "fine");
        check(&json!({"type": "object", "allOf": [{"$ref": "#"}]}), "EndlessRef(\"#\")");
        let ring = json!({"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {
            "a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}});
        check(&ring, "EndlessRef(\"#/$defs/");
    }

    #[test]
    fn long_chains_and_lost_references_are_refused() {
        let chain = |length: usize| {
            let one = |at: usize| json!({"properties": {"x": {"$ref": format!("#/$defs/c{}", (at + 1) % length)}}});
            let defs: Map<_, _> = (0..length).map(|at| (format!("c{at}"), one(at))).collect();
            json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/c0"}}, "$defs": defs})
        };
        check(&chain(200), "fine");
        check(&chain(300), "targets");
        check(&json!({"properties": {"x": {"$ref": "#/$defs/none"}}}), "LostRef");
    }
}
