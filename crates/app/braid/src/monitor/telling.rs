//! Mail, a program and webhooks are told of events: on a thread of their own, since each may take its time.

use super::Event;
use crate::configuration::Monitor;
use crate::output;
use crate::service::Priority;
use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Events that wait to be told; more are in the log alone.
const WAITING_MAX: usize = 256;
/// The time that a program gets.
const PROGRAM_WAIT: Duration = Duration::from_secs(60);
/// The time that a webhook gets each time, and the pauses before it is tried again.
const WEBHOOK_WAIT: Duration = Duration::from_secs(5);
const WEBHOOK_PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];
/// Between two looks if a program has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The program that mail is given to.
const SENDMAIL: &str = "/usr/sbin/sendmail";

/// See the module's documentation; dropping it waits for what is under way.
pub struct Telling {
    events: Option<SyncSender<Event>>,
    thread: Option<JoinHandle<()>>,
}

impl Telling {
    /// Tells those whom `monitor` names.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn begin(monitor: Monitor) -> Result<Telling> {
        if monitor.is_empty() {
            return Ok(Telling { events: None, thread: None });
        }
        let (events, told) = mpsc::sync_channel::<Event>(WAITING_MAX);
        let work = move || told.iter().for_each(|event| tell_all(&monitor, &event));
        let thread = std::thread::Builder::new().name("telling".to_string()).spawn(work);
        let thread = thread.context("starting the thread that tells of events")?;
        Ok(Telling { events: Some(events), thread: Some(thread) })
    }

    /// Tells of an event, soon.
    pub fn tell(&self, event: &Event) {
        let Some(events) = &self.events else { return };
        if events.try_send(event.clone()).is_err() {
            complain(&format!(
                "too many events wait to be told; nobody is told of {}",
                event.line()
            ));
        }
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        self.events = None;
        if let Some(thread) = self.thread.take() {
            // A panic ends the process.
            let _ = thread.join();
        }
    }
}

fn complain(text: &str) {
    output::tell(Priority::Warning, format!("braid: {text}"));
}

fn tell_all(monitor: &Monitor, event: &Event) {
    let failed = |whom: &str, error: &anyhow::Error| {
        complain(&format!("telling {whom} of {}: {}", event.event, output::said(error)));
    };
    if let Some(program) = &monitor.program
        && let Err(error) = run(program, event)
    {
        failed(&program.display().to_string(), &error);
    }
    for url in &monitor.webhook {
        if let Err(error) = post(url, event) {
            failed(url, &error);
        }
    }
    if event.is_mailed() && !monitor.mail.is_empty() {
        let sendmail = monitor.sendmail.as_deref().unwrap_or(Path::new(SENDMAIL));
        if let Err(error) = mail(sendmail, monitor, event) {
            failed(&monitor.mail.join(", "), &error);
        }
    }
}

/// As mdadm runs its PROGRAM: event, array, and the member where it is one's.
fn run(program: &Path, event: &Event) -> Result<()> {
    let mut command = Command::new(program);
    command.arg(&event.event).arg(&event.array).args(&event.member);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    wait(child.with_context(|| format!("starting {}", program.display()))?)
}

fn wait(mut child: Child) -> Result<()> {
    let end = Instant::now() + PROGRAM_WAIT;
    loop {
        match child.try_wait().context("waiting for it")? {
            Some(ended) if ended.success() => return Ok(()),
            Some(ended) => bail!("it ended with {ended}"),
            None if Instant::now() < end => std::thread::sleep(LOOK_EVERY),
            None => {
                // It may just have ended.
                let _ = child.kill();
                let _ = child.wait();
                bail!("it had not ended after {} s, and was killed", PROGRAM_WAIT.as_secs());
            }
        }
    }
}

fn post(url: &str, event: &Event) -> Result<()> {
    let body = serde_json::to_string(event).context("making JSON")?;
    let config = ureq::Agent::config_builder().timeout_global(Some(WEBHOOK_WAIT)).build();
    let agent: ureq::Agent = config.into();
    let mut pauses = WEBHOOK_PAUSES.iter();
    loop {
        let sent = agent.post(url).header("Content-Type", "application/json").send(&body);
        match (sent, pauses.next()) {
            (Ok(_), _) => return Ok(()),
            (Err(_), Some(pause)) => std::thread::sleep(*pause),
            (Err(error), None) => return Err(error).context("sending it, three times"),
        }
    }
}

fn mail(sendmail: &Path, monitor: &Monitor, event: &Event) -> Result<()> {
    let child = Command::new(sendmail)
        .arg("-t")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("starting {}", sendmail.display()))?;
    let mut child = child;
    let text = letter(monitor, event, &host());
    let mut input = child.stdin.take().context("the input of sendmail")?;
    let written = input.write_all(text.as_bytes());
    drop(input);
    wait(child)?;
    written.context("writing the mail")
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A mail, with its head. Names of arrays and members may come from disks: nothing in them begins a line.
fn letter(monitor: &Monitor, event: &Event, host: &str) -> String {
    let plain = |text: &str| text.replace(char::is_control, " ");
    let from = monitor.mail_from.as_deref().unwrap_or("braid monitoring <root>");
    let mut lines = vec![
        format!("From: {}", plain(from)),
        format!("To: {}", plain(&monitor.mail.join(", "))),
        format!("Subject: {} event on {}:{host}", event.event, plain(&event.array)),
        String::new(),
        format!("This is braid on {host}."),
        String::new(),
        plain(&event.text),
        String::new(),
        format!("array:  {}", plain(&event.array)),
        format!("UUID:   {}", event.uuid),
        format!("state:  {}", plain(&event.state)),
    ];
    if let Some(member) = &event.member {
        lines.push(format!("member: {}", plain(member)));
    }
    lines.push(String::new());
    lines.push(format!("`braid detail {}` shows more.", plain(&event.array)));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_control::protocol::samples::detail;

    #[test]
    fn a_mail_has_a_head_that_no_name_can_add_to() {
        let monitor =
            Monitor { mail: vec!["a@b".to_string(), "c".to_string()], ..Monitor::default() };
        let mut event = Event::of(
            &detail("data", &["faulty"]),
            "Fail",
            Some("/dev/x\nBcc: d"),
            "x".to_string(),
        );
        event.array = "data\nBcc: d".to_string();
        let text = letter(&monitor, &event, "host");
        let (head, body) = text.split_once("\n\n").unwrap();
        assert_eq!(
            head,
            "From: braid monitoring <root>\nTo: a@b, c\nSubject: Fail event on data Bcc: d:host"
        );
        assert!(body.contains("member: /dev/x Bcc: d\n") && !text.contains("\nBcc"), "{text}");
    }

    #[test]
    fn a_program_gets_the_event_and_is_not_waited_for_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let (program, out) = (folder.path().join("told"), folder.path().join("out"));
        std::fs::write(&program, format!("#!/bin/sh\necho \"$@\" > {}\nexit 3\n", out.display()))
            .unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        let event =
            Event::of(&detail("data", &["faulty"]), "Fail", Some("/dev/x"), "x".to_string());
        let error = run(&program, &event).unwrap_err().to_string();
        assert!(error.contains("exit status: 3"), "{error}");
        assert_eq!(std::fs::read_to_string(&out).unwrap(), "Fail data /dev/x\n");
    }
}
