//! What a record must say of the machine, the build and the peers' versions.

use std::fmt;
use std::fs;
use std::process::Command;

use nearjoin::SimdLevel;

use crate::peers::Python;

/// The machine in words, line by line.
pub(crate) struct Machine {
    lines: Vec<(&'static str, String)>,
}

impl Machine {
    /// The machine and the peers.
    pub(crate) fn with_peers(python: &Python) -> Self {
        let versions = ["kiddo", "rstar", "rayon"]
            .map(|name| format!("{name} {}", locked_version(name).unwrap_or("unknown")));
        let mut machine = Machine::describe();
        machine.lines.extend([
            ("peers in Rust", versions.join(", ")),
            ("peers in Python", python.to_string()),
        ]);
        machine
    }

    /// The machine and its GPU, in words.
    pub(crate) fn with_gpu(gpu: String) -> Self {
        let mut machine = Machine::describe();
        machine.lines.push(("GPU", gpu));
        machine
    }

    /// Asks the system. What it does not tell is "unknown".
    fn describe() -> Self {
        let threads = std::thread::available_parallelism().map_or(0, |n| n.get());
        let memory = field("/proc/meminfo", "MemTotal").and_then(|text| kibibytes(&text));
        let pages = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok();
        let load = fs::read_to_string("/proc/loadavg").ok();
        let load = load.map(|load| load.split(' ').take(3).collect::<Vec<_>>().join(" "));
        let known = |text: Option<String>| text.unwrap_or_else(|| "unknown".into());
        let lines = vec![
            ("date", known(output("date", &["-u", "+%F"]))),
            ("processor", known(field("/proc/cpuinfo", "model name"))),
            ("hardware threads", threads.to_string()),
            ("memory", known(memory.map(|bytes| format!("{:.1} GiB", bytes as f64 / GIB)))),
            ("kernel", known(output("uname", &["-sr"]))),
            ("transparent huge pages", known(pages.map(|text| text.trim().to_owned()))),
            ("load before", known(load)),
            ("compiler", env!("BENCH_RUSTC").into()),
            ("nearjoin's instruction set", simd()),
            ("built for", build().into()),
        ];
        Machine { lines }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|(name, value)| writeln!(f, "- {name}: {value}"))
    }
}

const GIB: f64 = (1u64 << 30) as f64;

/// Bytes that can be had without swapping.
pub(crate) fn available_memory() -> Option<u64> {
    kibibytes(&field("/proc/meminfo", "MemAvailable")?)
}

/// Bytes of a field of this process, such as `VmRSS` or `VmHWM`.
pub(crate) fn process_memory(name: &str) -> Option<u64> {
    kibibytes(&field("/proc/self/status", name)?)
}

fn kibibytes(text: &str) -> Option<u64> {
    text.split(' ').next()?.parse().ok().map(|kib: u64| kib << 10)
}

/// The value of the first `name : value` line of a file.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn simd() -> String {
    SimdLevel::detect().map_or_else(|error| error.to_string(), |level| level.to_string())
}

/// nearjoin chooses at run time; the peers are what the compiler made of them.
fn build() -> &'static str {
    if cfg!(debug_assertions) {
        return "debugging: these times mean nothing, use --release";
    }
    match (cfg!(feature = "kiddo-simd"), cfg!(target_feature = "avx2")) {
        (true, true) => "this processor (target-cpu), kiddo with its own SIMD",
        (true, false) => "any x86-64, kiddo with its own SIMD (of which this build has little)",
        (false, true) => "this processor (target-cpu), kiddo without its nightly-only SIMD",
        (false, false) => "any processor of its family, kiddo without its nightly-only SIMD",
    }
}

/// The version that Cargo.lock gives to a package.
fn locked_version(name: &str) -> Option<&'static str> {
    let lock = include_str!("../../Cargo.lock");
    let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    rest.split('"').next()
}

#[cfg(test)]
mod tests {
    #[test]
    fn peers_have_versions() {
        assert!(super::locked_version("kiddo").unwrap().starts_with("6."));
        assert!(super::locked_version("no-such-crate").is_none());
    }
}
