//! `detail --brief`, a line for `mdadm.conf`, `detail --toml`, entries for `braid.toml`, and `detail --export`, variables for scripts.

use crate::output::words;
use braid_control::protocol::Detail;
use braid_control::protocol::volume::VolumeDetail;

/// The `ARRAY` line, with the devices below it if `verbose`.
pub(super) fn lines(detail: &Detail, verbose: bool) -> String {
    let mut line = format!("ARRAY /dev/md/{}", detail.name);
    if verbose {
        line.push_str(&format!(" level={} num-devices={}", detail.level, detail.raid_devices));
    }
    line.push_str(&format!(" metadata={}", detail.version));
    match super::count::spares(detail) {
        0 => {}
        spares => line.push_str(&format!(" spares={spares}")),
    }
    if !detail.full_name.is_empty() {
        line.push_str(&format!(" name={}", words::quoted(&detail.full_name)));
    }
    line.push_str(&format!(" UUID={}", detail.uuid));
    if verbose {
        let names: Vec<&str> = detail.members.iter().map(|member| member.name.as_str()).collect();
        line.push_str(&format!("\n   devices={}", names.join(",")));
    }
    line
}

/// The `[[array]]` entry of `braid.toml`.
pub(super) fn toml(detail: &Detail) -> String {
    let mut lines = vec!["[[array]]".to_string()];
    let mut set = |key: &str, value: &str| {
        lines.push(format!("{key} = {}", ::toml::Value::String(value.to_string())));
    };
    set("uuid", &detail.uuid);
    if !detail.full_name.is_empty() {
        set("name", &detail.full_name);
    }
    if let Some(group) = &detail.spare_group {
        set("spare-group", group);
    }
    lines.join("\n")
}

/// The `[[volume]]` entry of `braid.toml`.
pub(super) fn volume_toml(detail: &VolumeDetail) -> String {
    use ::toml::Value::{Array, Boolean, String as Text};
    let bricks = || detail.bricks.iter().map(|brick| &brick.name);
    if bricks().any(|name| ["ram:", "model:"].iter().any(|kind| name.starts_with(kind))) {
        return format!("# volume {} has bricks in memory, which end with the server", detail.name);
    }
    let mut lines = vec!["[[volume]]".to_string()];
    let mut set = |key: &str, value: ::toml::Value| lines.push(format!("{key} = {value}"));
    set("uuid", Text(detail.uuid.clone()));
    set("name", Text(detail.name.clone()));
    set("mount", Text(detail.dir.clone()));
    // One that is away is called by its number.
    if bricks().all(|name| name.contains(['/', ':'])) {
        set("bricks", Array(bricks().cloned().map(Text).collect()));
    }
    let options = [
        ("read-only", detail.read_only),
        ("allow-other", detail.allow_other),
        ("no-suid", detail.no_suid),
        ("no-dev", detail.no_dev),
        ("no-exec", detail.no_exec),
    ];
    for (key, is) in options {
        if is {
            set(key, Boolean(true));
        }
    }
    lines.join("\n")
}

/// The `MD_*` variables.
pub(super) fn export(detail: &Detail) -> String {
    let mut lines = Vec::new();
    let mut set = |name: &str, value: &str| lines.push(format!("{name}={value}"));
    set("MD_LEVEL", &detail.level);
    set("MD_DEVICES", &detail.raid_devices.to_string());
    set("MD_METADATA", &detail.version);
    set("MD_UUID", &detail.uuid);
    set("MD_DEVNAME", &detail.name);
    if !detail.full_name.is_empty() {
        set("MD_NAME", &detail.full_name);
    }
    for member in &detail.members {
        let name = member.name.strip_prefix('/').unwrap_or(&member.name);
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let name: String = name.chars().map(plain).collect();
        let role = match (member.slot, member.state.as_str()) {
            (Some(slot), state) if state != "faulty" => slot.to_string(),
            _ => "spare".to_string(),
        };
        set(&format!("MD_DEVICE_{name}_ROLE"), &role);
        set(&format!("MD_DEVICE_{name}_DEV"), &member.name);
    }
    lines.join("\n")
}
