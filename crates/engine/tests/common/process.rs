//! Cases that need a process of their own: the test starts this program again for the ignored
//! function that holds the case.

use std::io::{Read, Seek};
use std::process::Command;
use std::time::{Duration, Instant};

/// A case that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs the ignored function `name` in a process of its own and fails unless it passes.
pub fn run_case(name: &str, settings: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(case_arguments(name));
    command.envs(settings.iter().copied());
    let (passed, text) = run(command);
    assert!(passed, "{name}:\n{text}");
}

pub fn case_arguments(name: &str) -> [&str; 4] {
    ["--ignored", "--exact", "--nocapture", name]
}

/// Whether the case passed, and all that it wrote. Kills what takes too long.
pub fn run(mut command: Command) -> (bool, String) {
    let mut output = tempfile::tempfile().unwrap();
    command.stdout(output.try_clone().unwrap());
    command.stderr(output.try_clone().unwrap());
    let mut child = command.spawn().unwrap();
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if start.elapsed() > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut text = Vec::new();
    output.rewind().unwrap();
    output.read_to_end(&mut text).unwrap();
    let mut text = String::from_utf8_lossy(&text).into_owned();
    if status.is_none() {
        text.push_str("killed: it took too long\n");
    }
    let passed = status.is_some_and(|s| s.success()) && text.contains("1 passed");
    (passed, text)
}
