//! The options of mdadm that are verbs here.

/// The words to type for an option of mdadm that is a verb here.
pub fn verb_for(word: &str) -> Option<String> {
    let word = word.split_once('=').map_or(word, |(word, _)| word);
    let verb = match word {
        "-A" | "--assemble" => "assemble MEMBER… --nbd unix:PATH, or start --scan",
        "-B" | "--build" => "create NAME --metadata 1.2: braid makes no arrays without superblocks",
        "-C" | "--create" => "create NAME --level L --raid-devices N MEMBER…",
        "-D" | "--detail" => "detail NAME",
        "-E" | "--examine" => "examine MEMBER…",
        "-F" | "--follow" | "--monitor" => "monitor",
        "-G" | "--grow" => "grow NAME",
        "-I" | "--incremental" => "incremental DEVICE",
        "-Q" | "--query" => "examine MEMBER…, or detail NAME",
        "-S" | "--stop" => "stop NAME",
        "-W" | "--wait" => "wait NAME",
        "-X" | "--examine-bitmap" => "examine --bitmap MEMBER…",
        "-a" | "--add" => "add NAME MEMBER…",
        "-f" | "--fail" | "--set-faulty" => "fail NAME MEMBER…",
        "-r" | "--remove" => "remove NAME MEMBER…",
        "--re-add" => "re-add NAME MEMBER…",
        "--replace" => "replace NAME MEMBER --with MEMBER",
        _ => return None,
    };
    Some(format!("{word} is a verb here, and comes first: braid {verb}"))
}
