//! A panic anywhere ends the process.
//!
//! A thread that panics takes along what others wait for: a shard's clients, the questions of commands, the orderly end.
//! So the process ends at once, by SIGABRT, when the panic has been said; whoever supervises it starts it again, and
//! arrays are as after any other unclean end. Threads of the metadata store are left out: they catch what the embedded
//! database says that way of damaged data, and answer with an error.

use crate::output;
use std::panic;

/// From now on, on every thread.
pub fn end_the_process() {
    let say = panic::take_hook();
    panic::set_hook(Box::new(move |what| {
        say(what);
        if braid_kv::catches_panics() {
            return;
        }
        output::note(
            "braid: this is a defect, and the process ends here; arrays and volumes are as after a power cut, start it \
             again",
        );
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use braid_shard::threads;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// Runs in a process of its own, which it ends.
    #[test]
    #[ignore = "the test beside it runs it"]
    fn a_shard_panics() {
        super::end_the_process();
        let shards = threads::start(2).unwrap();
        shards.remotes()[1].run(|_| panic!("planted"));
        // As the server does; without an end of the process for ever.
        loop {
            std::thread::park();
        }
    }

    #[test]
    fn a_panic_on_a_shard_ends_the_process() {
        let own = std::env::current_exe().unwrap();
        let words = ["--exact", "panics::tests::a_shard_panics", "--ignored", "--nocapture"];
        let ran = Command::new(own).args(words).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.signal(), Some(6), "{said}");
        assert!(said.contains("planted") && said.contains("shard-1"), "{said}");
        assert!(said.contains("this is a defect"), "{said}");
    }
}
