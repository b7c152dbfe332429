//! What a machine with a GPU needs and cannot build: the tests, the benchmarks and the program,
//! stripped and packed, in one folder with a script that runs them.

use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const SCRIPT: &str = include_str!("run.sh");
/// What may be carried to such a machine has a limit.
const MOST_BYTES: u64 = 40 << 20;

/// What is put into the folder.
const BINARIES: [Binary; 4] = [
    Binary { name: "suite", kind: Kind::Test, target: "suite", build: TESTS },
    Binary { name: "unit", kind: Kind::Test, target: "nearjoin", build: TESTS },
    Binary {
        name: "nearjoin-bench",
        kind: Kind::Program,
        target: "nearjoin-bench",
        build: PROGRAMS,
    },
    Binary { name: "nearjoin", kind: Kind::Program, target: "nearjoin", build: PROGRAMS },
];
const TESTS: &[&str] = &["test", "--no-run", "-p", "nearjoin", "--lib", "--test", "suite"];

// In one command, so that what they share is built once.
const PROGRAMS: &[&str] = &["build", "-p", "nearjoin-bench", "-p", "nearjoin-cli"];

/// An executable: its name in the folder, the target of cargo that it is, and the arguments of
/// cargo that make it.
struct Binary {
    name: &'static str,
    kind: Kind,
    target: &'static str,
    build: &'static [&'static str],
}

/// A test binary, or a program: two of them may have one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Test,
    Program,
}

/// Builds everything and puts it into the folder, which is emptied first.
pub(crate) fn make(folder: &Path) -> Result<()> {
    if folder.exists() && !folder.join("run.sh").exists() {
        return Err(format!("{} is there, and no bundle", folder.display()).into());
    }
    // Built before the folder is touched.
    let built: Vec<PathBuf> = BINARIES.iter().map(build).collect::<Result<_>>()?;
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    let mut total = 0;
    for (path, Binary { name, .. }) in built.iter().zip(&BINARIES) {
        let copy = folder.join(name);
        fs::copy(path, &copy)?;
        // Without symbols by hand: to build it so would be to build everything again.
        run("strip", &copy)?;
        // Most of what is left is the text of the kernels.
        run("gzip", &copy)?;
        let bytes = fs::metadata(folder.join(format!("{name}.gz")))?.len();
        println!("{:>6.1} MiB  {name}", mebibytes(bytes));
        total += bytes;
    }
    let script = folder.join("run.sh");
    fs::write(&script, SCRIPT)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    println!("{:>6.1} MiB  {}", mebibytes(total), folder.display());
    match total <= MOST_BYTES {
        true => Ok(()),
        false => Err(format!("more than {} MiB", mebibytes(MOST_BYTES)).into()),
    }
}

/// Where cargo has put an executable.
fn build(binary: &Binary) -> Result<PathBuf> {
    let found = executable(&cargo(binary.build)?, binary.kind, binary.target);
    found.ok_or_else(|| format!("cargo made no {}", binary.name).into())
}

/// Runs cargo on the workspace, in release, and gives its messages, one JSON value to a line.
fn cargo(args: &[&str]) -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(args)
        .args(["--release", "--message-format=json-render-diagnostics"])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout)?),
        false => Err(format!("cargo {} failed", args.join(" ")).into()),
    }
}

/// The executable of a target, from cargo's messages.
fn executable(messages: &str, kind: Kind, target: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_target = |message: &Value| {
        message["target"]["name"] == target
            && message["profile"]["test"] == Value::Bool(kind == Kind::Test)
    };
    messages.filter(of_target).find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// Runs a tool on a file, which it replaces.
fn run(tool: &str, path: &Path) -> Result<()> {
    match Command::new(tool).arg(path).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{tool} {}: {status}", path.display()).into()),
        Err(error) => Err(format!("{tool}: {error}").into()),
    }
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_found_by_target_and_kind() {
        let messages = [
            r#"{"reason":"compiler-artifact","target":{"name":"nearjoin"},"profile":{"test":false},"executable":null}"#,
            r#"{"reason":"compiler-artifact","target":{"name":"nearjoin"},"profile":{"test":true},"executable":"/t/nearjoin-1"}"#,
            r#"{"reason":"compiler-artifact","target":{"name":"suite"},"profile":{"test":true},"executable":"/t/suite-2"}"#,
            "not JSON",
            r#"{"reason":"build-finished","success":true}"#,
        ]
        .join("\n");
        let found = |kind, target| executable(&messages, kind, target);
        assert_eq!(found(Kind::Test, "nearjoin"), Some("/t/nearjoin-1".into()));
        assert_eq!(found(Kind::Test, "suite"), Some("/t/suite-2".into()));
        assert_eq!(found(Kind::Program, "nearjoin"), None);
    }

    #[test]
    fn the_script_runs_what_is_there() {
        for Binary { name, .. } in BINARIES {
            assert!(SCRIPT.contains(&format!("\"$bin/{name}\"")), "{name}");
        }
        // Every section of the benchmarks that is for a GPU.
        let flags = "gpu gpu-scaling gpu-papers hybrid hybrid-papers gpu-knn gpu-product \
                     gpu-crossover knn-papers";
        for flag in flags.split(' ') {
            assert!(SCRIPT.contains(&format!(" --{flag} ")), "{flag}");
        }
    }
}
