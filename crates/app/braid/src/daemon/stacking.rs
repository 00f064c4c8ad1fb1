//! Which of the running arrays is a member of which.

use super::orders::status;
use anyhow::Result;
use braid_array::array::Array;
use braid_array::stacking::PREFIX;
use std::collections::HashMap;
use std::sync::Arc;

/// The name of the array that a member of this name is.
pub fn array_of(member: &str) -> Option<&str> {
    member.strip_prefix(PREFIX)
}

/// For each array that is a member of another, also a faulty one, the other.
///
/// # Errors
/// When an array is stopped meanwhile.
pub fn users(arrays: &[Arc<Array>]) -> Result<HashMap<String, String>> {
    let mut users = HashMap::new();
    for array in arrays {
        for member in status(array)?.members {
            if let Some(below) = array_of(&member.name) {
                users.insert(below.to_string(), array.name().to_string());
            }
        }
    }
    Ok(users)
}

/// `lower` is `upper`, or `upper` is a member of it, of one of its members, and so on.
///
/// # Errors
/// When an array is stopped meanwhile.
pub fn is_below(arrays: &[Arc<Array>], upper: &str, lower: &str) -> Result<bool> {
    let users = users(arrays)?;
    let mut at = Some(&upper.to_string()).cloned();
    // Each step goes one array up, and no array lies above itself.
    for _ in 0..=arrays.len() {
        match at {
            Some(name) if name == lower => return Ok(true),
            Some(name) => at = users.get(&name).cloned(),
            None => break,
        }
    }
    Ok(false)
}

/// In an order in which they can be stopped: each array in an earlier layer than those that it is made of.
pub fn tops_first(arrays: Vec<Arc<Array>>) -> Vec<Vec<Arc<Array>>> {
    let mut left = arrays;
    let mut order: Vec<Vec<Arc<Array>>> = Vec::new();
    while !left.is_empty() {
        // One that is being stopped elsewhere says nothing of its members any more.
        let users = users(&left).unwrap_or_default();
        let free = |array: &Arc<Array>| !users.contains_key(array.name());
        let (tops, lower): (Vec<_>, Vec<_>) = left.into_iter().partition(free);
        if tops.is_empty() {
            order.push(lower);
            break;
        }
        order.push(tops);
        left = lower;
    }
    order
}
