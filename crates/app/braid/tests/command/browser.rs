//! A browser without a window, Debian's Chromium, driven over a pipe (DevTools protocol: JSON, a zero byte behind each).

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The time that the page gets to become as it is expected.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Browser {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    /// The page.
    session: Value,
    asked: u64,
    /// Everything that happened, as it was told.
    pub events: Vec<Value>,
    _profile: TempDir,
}

impl Browser {
    pub fn start() -> Browser {
        let profile = tempfile::tempdir().unwrap();
        let options = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --no-first-run \
                       --disable-background-networking --remote-debugging-pipe";
        // It reads from 3 and writes to 4. A browser that hangs is not waited for.
        let script =
            format!("exec timeout 200 chromium {options} \"$0\" about:blank 3<&0 4>&1 >&2");
        let mut child = Command::new("bash")
            .args(["-c", &script])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut browser = Browser {
            child,
            to,
            from,
            session: Value::Null,
            asked: 0,
            events: Vec::new(),
            _profile: profile,
        };
        let target = browser.ask("Target.createTarget", json!({ "url": "about:blank" }));
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.ask("Target.attachToTarget", target);
        browser.session = session["sessionId"].clone();
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    #[track_caller]
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let mut message = json!({ "id": self.asked, "method": method, "params": params });
        if !self.session.is_null() {
            message["sessionId"] = self.session.clone();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.as_mut().unwrap().write_all(&bytes).unwrap();
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).unwrap();
            assert_eq!(
                bytes.pop(),
                Some(0),
                "chromium has ended; it is one of the packages of scripts/setup-packages test"
            );
            let mut said: Value = serde_json::from_slice(&bytes).unwrap();
            if said["id"] == self.asked {
                assert!(said["error"].is_null(), "{method}: {said}");
                return said["result"].take();
            }
            self.events.push(said);
        }
    }

    pub fn open(&mut self, url: &str) {
        self.ask("Page.navigate", json!({ "url": url }));
    }

    /// The value of an expression on the page.
    #[track_caller]
    pub fn eval(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true });
        let said = self.ask("Runtime.evaluate", params);
        assert!(said["exceptionDetails"].is_null(), "{expression}: {said}");
        said["result"]["value"].clone()
    }

    /// Waits until the expression is true.
    #[track_caller]
    pub fn until(&mut self, expression: &str) {
        let end = Instant::now() + PATIENCE;
        // In between the page may be another.
        let expression = format!("try {{ !!({expression}) }} catch {{ false }}");
        while self.eval(&expression) != true {
            if Instant::now() > end {
                let text = self.eval("document.body.innerText");
                panic!("it does not become true: {expression}\n{text}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Clicks the button with this text.
    #[track_caller]
    pub fn click(&mut self, text: &str) {
        let button = format!(
            "[...document.querySelectorAll('button')].find((button) => button.textContent === {text:?})"
        );
        self.until(&button);
        self.eval(&format!("{button}.click()"));
    }

    /// A window of that size, of a telephone where it is narrow; `dark`: what the user prefers.
    pub fn window(&mut self, width: u32, height: u32, dark: bool) {
        let phone = width < 600;
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone,
        });
        self.ask("Emulation.setDeviceMetricsOverride", size);
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.ask("Emulation.setEmulatedMedia", media);
    }

    /// A picture of the window as PNG.
    pub fn picture(&mut self, file: &Path) {
        let params = json!({ "format": "png", "captureBeyondViewport": false });
        let said = self.ask("Page.captureScreenshot", params);
        let bytes = BASE64_STANDARD.decode(said["data"].as_str().unwrap()).unwrap();
        assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 4096, "an empty picture");
        std::fs::write(file, bytes).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Without its pipe it ends; the time limit is for one that does not.
        self.to = None;
        let _ = self.child.wait();
    }
}
