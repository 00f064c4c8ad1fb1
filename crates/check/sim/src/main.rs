fn main() {
    let mut args = std::env::args().skip(1);
    let first: u64 = args.next().and_then(|a| a.parse().ok()).unwrap_or(0);
    let n: u64 = args.next().and_then(|a| a.parse().ok()).unwrap_or(1);
    let verbose = args.next().is_some();
    for seed in first..first + n {
        let report = braid_sim::run::run(seed, verbose);
        if report.verdict != braid_sim::run::Verdict::Passed {
            println!("{seed} {:?}\n   {}", report.verdict, report.scenario);
        }
    }
}
