//! One image, two ways to it: the real md has the loop device, or braid the file, and each keeps the other off. In the guest,
//! where both run under one kernel.

use braid_interop::uml::{self, SHARED};
use std::time::Duration;

/// Lines `STEP WORDS`.
const SCRIPT: &str = r#"
cd /tmp
truncate -s 32M a b
losetup /dev/loop0 a; losetup /dev/loop1 b
exec 9<> <(:)
# braid: serves the files until its standard input ends
braid() { $BRAID serve /tmp/socket /tmp/a /tmp/b; }
mdadm --create /dev/md0 --run --quiet --level 1 --raid-devices 2 --assume-clean /dev/loop0 /dev/loop1
echo content > /dev/md0; sync
braid < /dev/null > said 2>&1; echo "while-md-runs $? $(tr '\n' ' ' < said)"
read -r same < /dev/md0; echo "md-goes-on $same"
mdadm --stop --quiet /dev/md0
mkfifo end
braid < end > said 2>&1 &
exec 8> end
for ((i = 0; i < 500; i++)); do grep -q serving said && break; read -r -t 0.02 -u 9; done
echo "after-md $(tr '\n' ' ' < said)"
mdadm --assemble /dev/md0 /dev/loop0 /dev/loop1 > taken 2>&1; echo "md-while-braid-runs $? $(tr '\n' ' ' < taken)"
exec 8>&-
wait %1; echo "braid-ends $?"
mdadm --assemble --quiet /dev/md0 /dev/loop0 /dev/loop1 && read -r same < /dev/md0; echo "md-again $same"
mdadm --stop --quiet /dev/md0
"#;

#[test]
fn md_on_loop_devices_and_braid_on_their_files_keep_each_other_off() {
    let folder = tempfile::Builder::new().prefix("braid-interop.").tempdir_in("/var/tmp");
    let folder = folder.expect("a folder in /var/tmp");
    // The guest has folders of its own in some places, and the program may lie in one of them here.
    let program = folder.path().join("braid-interop");
    std::fs::copy(env!("CARGO_BIN_EXE_braid-interop"), program).expect("room for the program");
    let script = format!("BRAID={SHARED}/braid-interop\n{SCRIPT}");
    let output =
        uml::run(&script, folder.path(), 512, Duration::from_secs(120)).expect("the guest runs");
    assert_eq!(output.status, 0, "{}", output.text);
    let step = |name: &str| {
        let mut lines = output.text.lines().map(str::trim);
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("nothing of {name} in {}", output.text)).to_string()
    };
    let refused = step("while-md-runs");
    for words in
        ["1 ", "/dev/md0 uses it through the loop device /dev/loop0", "mdadm --stop /dev/md0"]
    {
        assert!(refused.contains(words), "{words:?} is not in {refused}");
    }
    assert_eq!(step("md-goes-on"), "content");
    assert!(step("after-md").contains("serving"), "{}", output.text);
    let refused = step("md-while-braid-runs");
    assert!(!refused.starts_with("0 ") && refused.contains("/dev/loop0 is busy"), "{refused}");
    assert_eq!(step("braid-ends"), "0");
    assert_eq!(step("md-again"), "content");
}
