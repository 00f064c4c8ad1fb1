//! Names of what is made: characters that are safe in a file name, on a command line and in a table of mounts.

/// Refuses `text` as a name of `what`, such as "an array", when it is longer than the `room` bytes that a superblock has for
/// it, or has characters that are not safe.
///
/// # Errors
/// The reason, and what to use instead.
pub fn check(text: &str, what: &str, room: usize) -> Result<(), String> {
    if text.len() > room {
        return Err(format!(
            "it takes {} bytes and a superblock has room for {room}; choose a shorter one",
            text.len()
        ));
    }
    let safe = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if let Some(bad) = text.chars().find(|c| !safe(*c)) {
        return Err(format!(
            "{bad:?} cannot be in the name of {what}; use letters, digits and . _ -"
        ));
    }
    if text.starts_with(['-', '.']) {
        return Err("it must begin with a letter, a digit or _".to_string());
    }
    Ok(())
}
