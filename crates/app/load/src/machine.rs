//! What a figure was measured on, in one line: figures of other machines cannot be compared.

use serde::Serialize;

/// The machine and what braid uses of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// The processor, with family and model.
    pub cpu: String,
    /// Processors that this process may use.
    pub cores: usize,
    /// Memory in bytes.
    pub memory: u64,
    /// The kernel's release.
    pub kernel: String,
    /// Which parity kernels are in use.
    pub parity: String,
}

impl Machine {
    /// This one.
    pub fn here() -> Machine {
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let kilobytes = field(&memory, "MemTotal")
            .and_then(|value| value.strip_suffix(" kB")?.trim().parse::<u64>().ok());
        Machine {
            cpu: cpu_name(&cpu),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: kilobytes.unwrap_or_default() << 10,
            kernel: kernel.trim().to_owned(),
            parity: braid_parity::implementation().to_owned(),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Machine { cpu, cores, memory, kernel, parity } = self;
        let gibibytes = memory.div_ceil(1 << 30);
        write!(f, "{cpu}, {cores} cores, {gibibytes} GiB, Linux {kernel}, parity by {parity}")
    }
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then_some(value.trim())
    })
}

fn cpu_name(info: &str) -> String {
    let name = field(info, "model name").unwrap_or("unknown processor");
    match (field(info, "cpu family"), field(info, "model")) {
        (Some(family), Some(model)) => format!("{name} (family {family}, model {model})"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_named_from_what_the_kernel_says() {
        let info = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD EPYC\n";
        assert_eq!(cpu_name(info), "AMD EPYC (family 25, model 1)");
        assert_eq!(cpu_name(""), "unknown processor");
    }

    #[test]
    fn this_machine_has_memory_and_a_kernel() {
        let here = Machine::here();
        assert!(here.memory > 0 && here.cores > 0 && !here.kernel.is_empty());
    }
}
