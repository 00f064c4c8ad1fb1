//! Flags of members, changed while the array runs.

use super::membership::select;
use super::orders::order;
use anyhow::Result;
use braid_array::array::Array;
use braid_array::state::flags::MemberFlags;

/// Sets or clears flags of a member; `None` leaves one as it is. Gives a sentence that says what was done.
///
/// # Errors
/// No such member, a faulty one, an array that may not be written.
pub fn change(
    array: &Array,
    member: &str,
    write_mostly: Option<bool>,
    failfast: Option<bool>,
) -> Result<String> {
    let (member, name) = select(array, member)?;
    order(array, move |control| async move {
        let change = |flags: &mut MemberFlags| {
            flags.write_mostly = write_mostly.unwrap_or(flags.write_mostly);
            flags.failfast = failfast.unwrap_or(flags.failfast);
        };
        control.membership().set_flags(&member, change).await
    })?;
    let say = |flag: &str, value: Option<bool>| {
        value.map(|on| format!("{flag} is {}", if on { "on" } else { "off" }))
    };
    let flags = [say("write-mostly", write_mostly), say("failfast", failfast)];
    let flags: Vec<String> = flags.into_iter().flatten().collect();
    Ok(format!("member {name} of array {}: {}", array.name(), flags.join(", ")))
}
