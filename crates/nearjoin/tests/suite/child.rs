//! Tests that need a process of their own, because what they set or measure belongs to
//! the whole process.

use std::process::{Command, Output};

/// A run of one ignored test of this binary in a new process.
pub(crate) struct Child {
    command: Command,
}

impl Child {
    /// The test called `name`, with its module.
    pub(crate) fn new(name: &str) -> Self {
        let binary = std::env::current_exe().expect("a test has a binary");
        let mut command = Command::new(binary);
        command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"]);
        Child { command }
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// As on a machine that has no GPU.
    pub(crate) fn without_gpu(self) -> Self {
        self.env("CUDA_VISIBLE_DEVICES", "")
    }

    /// With so many MiB of address space.
    #[cfg(target_os = "linux")]
    pub(crate) fn with_address_space(self, megabytes: usize) -> Self {
        let mut command = Command::new("sh");
        let script = format!("ulimit -v {}; exec \"$0\" \"$@\"", megabytes << 10);
        command.args(["-c", &script]).arg(self.command.get_program());
        command.args(self.command.get_args());
        Child { command }
    }

    /// Runs it to its end, whatever that is.
    pub(crate) fn output(mut self) -> Output {
        self.command.output().expect("this binary can be run")
    }

    /// Runs it, and gives the lines that it printed with [`say`]. It must pass.
    pub(crate) fn lines(self) -> Vec<String> {
        let output = self.output();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "the child failed: {text}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        said(&output)
    }
}

const MARK: &str = "child says: ";

/// Prints a line for the parent.
pub(crate) fn say(line: &str) {
    // The harness leaves its own line open.
    println!("\n{MARK}{line}");
}

/// What a child printed with [`say`].
pub(crate) fn said(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(|line| line.strip_prefix(MARK)).map(String::from).collect()
}
