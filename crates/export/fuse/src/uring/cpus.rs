//! The number of the kernel's queues: one for each processor that the machine could have.

/// The number of them; `None` when the kernel does not tell.
pub(super) fn possible() -> Option<u16> {
    count(&std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?)
}

/// The number of processors that a list such as `0-3,8` names (the kernel's Documentation/admin-guide/cputopology.rst).
fn count(list: &str) -> Option<u16> {
    list.trim().split(',').try_fold(0u16, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_counted() {
        for (list, expected) in
            [("0\n", Some(1)), ("0-3\n", Some(4)), ("0-1,4,8-15", Some(11)), ("0-1023", Some(1024))]
        {
            assert_eq!(count(list), expected, "{list}");
        }
        for wrong in ["", "3-1", "a", "0-65535", "0,"] {
            assert_eq!(count(wrong), None, "{wrong}");
        }
        assert!(possible().is_some_and(|count| count > 0));
    }
}
