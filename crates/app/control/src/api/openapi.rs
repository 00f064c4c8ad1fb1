//! The document of the API (OpenAPI 3.1), made from the table of routes and the types of the protocol.

use super::PREFIX;
use super::routes::{Fixed, ROUTES, Route};
use crate::protocol::volume::VolumeRequest;
use crate::protocol::{Answer, Refusal, Request};
use schemars::JsonSchema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

const COMPONENTS: &str = "/components/schemas";

/// The document.
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|all| {
        all.definitions_path = COMPONENTS.into();
        all.meta_schema = None;
    });
    let mut made = settings.into_generator();
    let requests = variants::<Request>(&mut made, "verb");
    let volumes = variants::<VolumeRequest>(&mut made, "verb");
    let answers = variants::<Answer>(&mut made, "answer");
    let refusal = made.subschema_for::<Refusal>().to_value();
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let found = match route.verb.strip_prefix("volume/") {
            Some(verb) => volumes.get(verb),
            None => requests.get(route.verb),
        };
        let operation = operation(route, found.unwrap_or(&Value::Null), &answers, &refusal);
        let path = format!("{PREFIX}{}", route.path.replace("?}", "}"));
        let entry = paths.entry(path).or_insert_with(|| json!({}));
        entry[route.method.to_ascii_lowercase()] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "braid",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The control API of a braid server: arrays and volumes. GET looks, POST changes. In a path \
                `-` stands for the only array or volume that there is, where the parameter says so. Sizes and positions are \
                in bytes, times in seconds since 1970, speeds in KiB per second, unless said otherwise.",
        },
        "servers": [{ "url": "/", "description": "The control socket, or the address of serve --http" }],
        "security": [{}, { "token": [] }],
        "paths": paths,
        "components": {
            "schemas": made.take_definitions(true),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "At the address of serve --http. At the control socket the user decides.",
                },
            },
        },
    })
}

/// The variants of an enum that is told apart by the word in `tag`, by that word; the enum itself is not among the definitions.
fn variants<T: JsonSchema>(made: &mut SchemaGenerator, tag: &str) -> Map<String, Value> {
    made.subschema_for::<T>();
    let name = T::schema_name();
    let all = made.definitions_mut().remove(name.as_ref()).unwrap_or_default();
    let all = all.get("oneOf").and_then(Value::as_array).cloned().unwrap_or_default();
    all.into_iter()
        .filter_map(|variant| {
            let word = variant["properties"][tag]["const"].as_str()?.to_string();
            Some((word, variant))
        })
        .collect()
}

fn operation(
    route: &Route,
    request: &Value,
    answers: &Map<String, Value>,
    refusal: &Value,
) -> Value {
    let empty = Map::new();
    let mut fields = request["properties"].as_object().unwrap_or(&empty).clone();
    fields.remove("verb");
    let mut required: Vec<&Value> = request["required"].as_array().into_iter().flatten().collect();
    let mut parameters = Vec::new();
    for field in route.fields() {
        let mut text = "a name or UUID".to_string();
        if field.name == "volume" {
            text.push_str(", or the directory where it is mounted");
        }
        if field.optional {
            text.push_str("; `-`: the only one that there is");
        }
        fields.remove(field.name);
        parameters.push(json!({
            "name": field.name, "in": "path", "required": true, "description": text,
            "schema": { "type": "string" },
        }));
    }
    for (name, _) in route.fixed {
        fields.remove(*name);
    }
    required.retain(|name| name.as_str().is_some_and(|name| fields.contains_key(name)));
    let lines = route.answers.contains(&"progress");
    let kind = if lines { "application/x-ndjson" } else { "application/json" };
    let answers: Vec<&Value> =
        route.answers.iter().filter_map(|answer| answers.get(*answer)).collect();
    let schema = match answers.as_slice() {
        [only] => (*only).clone(),
        several => json!({ "oneOf": several }),
    };
    let says = request["description"].as_str().unwrap_or_default();
    let fixed: Vec<&str> = route
        .fixed
        .iter()
        .filter_map(|(_, value)| match value {
            Fixed::Word(word) => Some(*word),
            Fixed::Null => None,
        })
        .collect();
    let id = [&[route.verb.replace('/', "-").as_str()], fixed.as_slice()].concat().join("-");
    let id = match (route.verb, route.path) {
        ("stop", "/server/stop") => "stop-all".to_string(),
        _ => id,
    };
    let wanted = json!({
        "description": if lines { "One line for each look at the job, and one when it has ended." } else { "Done." },
        "content": { kind: { "schema": schema } },
    });
    let refused = json!({
        "description": "Refused: a sentence, and a code that stays.",
        "content": { "application/json": { "schema": refusal } },
    });
    let mut operation = json!({
        "operationId": id,
        "summary": says.split(['.', ';', ':']).next().unwrap_or_default(),
        "description": says,
        "responses": { "200": wanted, "default": refused },
    });
    if route.method == "GET" {
        for (name, schema) in &fields {
            let required = required.iter().any(|known| *known == name);
            parameters.push(
                json!({ "name": name, "in": "query", "required": required, "schema": schema }),
            );
        }
    } else {
        operation["requestBody"] = json!({
            "required": !required.is_empty(),
            "content": { "application/json": { "schema": {
                "type": "object",
                "properties": fields,
                "required": required,
                "additionalProperties": false,
            } } },
        });
    }
    operation["parameters"] = Value::Array(parameters);
    operation
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn references(value: &Value, all: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    match value {
                        Value::String(text) if name == "$ref" => {
                            all.insert(text.clone());
                        }
                        value => references(value, all),
                    }
                }
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, all)),
            _ => {}
        }
    }

    #[test]
    fn each_request_has_a_path_and_each_path_a_request() {
        let mut made = SchemaGenerator::default();
        let mut known: BTreeSet<String> =
            variants::<Request>(&mut made, "verb").keys().cloned().collect();
        assert!(known.remove("volume") && known.len() > 30, "{known:?}");
        let volumes = variants::<VolumeRequest>(&mut made, "verb");
        known.extend(volumes.keys().map(|verb| format!("volume/{verb}")));
        let routed: BTreeSet<String> = ROUTES.iter().map(|route| route.verb.to_string()).collect();
        assert_eq!(known, routed);
        let answers = variants::<Answer>(&mut made, "answer");
        for route in ROUTES {
            let unknown = route.answers.iter().find(|answer| !answers.contains_key(**answer));
            assert_eq!(unknown, None, "{}", route.path);
        }
    }

    #[test]
    fn everything_that_the_document_refers_to_is_in_it() {
        let document = document();
        let mut all = BTreeSet::new();
        references(&document, &mut all);
        assert!(all.len() > 20, "{all:?}");
        for reference in all {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
        let ids = document["paths"].as_object().unwrap().values().flat_map(|path| {
            let methods = path.as_object().unwrap().values();
            methods.map(|operation| operation["operationId"].as_str().unwrap().to_string())
        });
        let ids: Vec<String> = ids.collect();
        assert_eq!(ids.len(), ROUTES.len());
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{ids:?}");
    }

    #[test]
    fn an_operation_has_the_fields_of_its_request() {
        let document = document();
        let fail = &document["paths"]["/v1/arrays/{array}/fail"]["post"];
        let body = &fail["requestBody"]["content"]["application/json"]["schema"];
        assert_eq!(body["required"], json!(["members"]));
        assert_eq!(body["properties"]["members"]["items"]["type"], "string");
        assert_eq!(fail["parameters"][0]["name"], "array");
        let wait = &document["paths"]["/v1/volumes/{volume}/job/wait"]["get"];
        assert_eq!(wait["parameters"][1]["name"], "check");
    }
}
