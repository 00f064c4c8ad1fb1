//! The switch of the kernel's module, which is off unless an administrator has set it.

/// Linux could send requests over io_uring, but is told not to. False where it cannot, or does not tell.
pub fn io_uring_is_off() -> bool {
    let parameter = std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    parameter.is_ok_and(|text| is_off(&text))
}

fn is_off(parameter: &str) -> bool {
    parameter.trim() == "N"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_switch_that_says_no_is_off() {
        assert!(is_off("N\n") && is_off("N"));
        assert!(!is_off("Y\n") && !is_off(""));
    }
}
