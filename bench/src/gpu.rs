//! Joins on a GPU: their times beside the limits, growth, and the papers' tables.

mod batches;
pub(crate) mod cases;
pub(crate) mod data;
mod first;
mod hybrid;
pub(crate) mod knn;
pub(crate) mod measure;
mod papers;
pub(crate) mod product;
mod scaling;
mod small;
mod standard;

use std::process::{Command, Stdio};
use std::sync::Arc;

use nearjoin::gpu::driver::Driver;
use nearjoin::gpu::{GpuOptions, Knobs};
use nearjoin::{Device, EpsJoin, Join, Question};

use crate::Result;
use crate::args::{Options, Section};
use crate::crossover;

/// Runs a section. The second is false if an answer is wrong.
pub(crate) fn run(section: Section, options: &Options) -> Result<(String, bool)> {
    let target = Target::new(options)?;
    match section {
        Section::GpuScaling => scaling::run(&target, options).map(|text| (text, true)),
        Section::GpuPapers => papers::run(&target, options),
        Section::GpuSmall => small::run(&target, options),
        Section::Hybrid => hybrid::run(&target, options),
        Section::HybridPapers => hybrid::papers::run(&target, options),
        Section::GpuKnn => knn::run(&target, options),
        Section::GpuProduct => product::run(&target, options),
        Section::GpuCrossover => {
            crossover::run(&target, Device::Gpu, options).map(|text| (text, true))
        }
        Section::KnnPapers => knn::papers::run(&target, options),
        _ => standard::run(&target, options),
    }
}

/// What this process does for the one that started it, and prints.
pub(crate) fn run_child(child: &Child, options: &Options) -> Result<String> {
    let target = Target::new(options)?;
    match child {
        Child::First(name) => first::here(name, &target, options).map(|first| first.to_string()),
        Child::Batches(name) => batches::here(name, &target, options),
    }
}

/// The GPU in words: its name, its driver.
pub(crate) fn describe(options: &Options) -> Result<String> {
    if options.simt {
        return Ok("none; its kernels run on the CPU, and these times mean nothing".into());
    }
    let gpu = nearjoin::gpu::find()?;
    let ((major, minor), (cuda, point)) = (gpu.capability, gpu.driver);
    let module = std::fs::read_to_string("/proc/driver/nvidia/version").ok();
    let module = module.as_deref().and_then(driver_version).unwrap_or("unknown");
    Ok(format!(
        "{}, {:.1} GiB ({:.1} free), {} multiprocessors, compute capability {major}.{minor}, \
         driver {module} for CUDA {cuda}.{point}",
        gpu.name,
        gpu.memory as f64 / (1u64 << 30) as f64,
        gpu.free_memory as f64 / (1u64 << 30) as f64,
        gpu.multiprocessors,
    ))
}

/// The number in `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  …`.
fn driver_version(text: &str) -> Option<&str> {
    let mut words = text.lines().next()?.split_whitespace();
    words.find(|word| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit()))
}

/// What went wrong, case by case: the others are measured all the same.
#[derive(Default)]
struct Failures(String);

impl Failures {
    /// The value, if there is one; else the reason is kept, and shown at once.
    fn keep<V>(&mut self, name: &str, result: Result<V>) -> Option<V> {
        let reason = match result {
            Ok(value) => return Some(value),
            Err(reason) => reason,
        };
        eprintln!("{name}: {reason}");
        self.0 += &format!("- **{name} failed: {reason}**\n");
        None
    }

    fn none(&self) -> bool {
        self.0.is_empty()
    }
}

/// Where joins run: the GPU of this machine, or its kernels on the CPU.
pub(crate) struct Target {
    driver: Option<Arc<dyn Driver>>,
}

impl Target {
    /// Opens nothing yet: the first join does.
    pub(crate) fn new(options: &Options) -> Result<Self> {
        match options.simt {
            true => Ok(Target { driver: Some(simt()?) }),
            false => Ok(Target { driver: None }),
        }
    }

    /// A join there.
    fn join(&self, eps: f64, gpu: GpuOptions) -> EpsJoin {
        self.join_with(eps, gpu, Knobs::default())
    }

    fn join_with(&self, eps: f64, gpu: GpuOptions, knobs: Knobs) -> EpsJoin {
        self.on_with(Device::Gpu, &EpsJoin::new(eps), gpu, knobs)
    }

    /// A join of either kind on one of the devices, or on several.
    pub(crate) fn on<Q: Copy + Into<Question>>(&self, device: Device, join: &Join<Q>) -> Join<Q> {
        self.on_with(device, join, GpuOptions::new(), Knobs::default())
    }

    fn on_with<Q: Copy + Into<Question>>(
        &self,
        device: Device,
        join: &Join<Q>,
        gpu: GpuOptions,
        knobs: Knobs,
    ) -> Join<Q> {
        join.clone().device(device).gpu(gpu.knobs(self.knobs(knobs)))
    }

    /// Knobs with the device.
    fn knobs(&self, mut knobs: Knobs) -> Knobs {
        knobs.driver.clone_from(&self.driver);
        knobs
    }
}

#[cfg(test)]
fn simt() -> Result<Arc<dyn Driver>> {
    Ok(Arc::new(nearjoin_simt::Simt::new()))
}

#[cfg(not(test))]
fn simt() -> Result<Arc<dyn Driver>> {
    Err("--simt is for the tests of this program".into())
}

/// What only a fresh process can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Child {
    /// The first call, on the case of this name.
    First(String),
    /// Batches of several sizes, none of which is pinned yet, on the set of this name.
    Batches(String),
}

impl Child {
    /// Runs it in a process of its own and gives what that printed.
    fn run(&self, options: &Options) -> Result<String> {
        let (flag, name) = match self {
            Child::First(name) => ("--gpu-first", name),
            Child::Batches(name) => ("--gpu-batches", name),
        };
        let mut command = Command::new(std::env::current_exe()?);
        command.args([flag, name, "--reps", &options.reps.to_string()]).stderr(Stdio::inherit());
        if let Some(points) = options.points {
            command.args(["--points", &points.to_string()]);
        }
        if options.simt {
            command.arg("--simt");
        }
        let output = command.output()?;
        if !output.status.success() {
            return Err(format!("{flag} {name} failed: {}", output.status).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_is_named() {
        let text =
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\nGCC 12.2";
        assert_eq!(driver_version(text), Some("550.54.15"));
        assert_eq!(driver_version("NVRM version: none"), None);
    }

    /// Options for a section on the CPU, with few points.
    fn options(line: &str) -> Options {
        let line = format!("{line} --simt --reps 1");
        crate::args::parse(line.split(' ').map(String::from)).unwrap()
    }

    #[test]
    fn a_case_on_the_kernels_own_sources() {
        let options = options("--gpu --cases uniform3 --points 400");
        let target = Target::new(&options).unwrap();
        let mut failures = Failures::default();
        let text = standard::cases(&target, &options, &mut failures);
        assert!(failures.none(), "{}", failures.0);
        assert!(text.contains("| uniform3"), "{text}");
        let first = run_child(&Child::First("uniform3".into()), &options).unwrap();
        assert_eq!(first.split(' ').count(), 3, "{first}");
    }

    #[test]
    fn the_papers_on_the_kernels_own_sources() {
        let options = options("--gpu-papers --cases Expo3D2M --points 300");
        let target = Target::new(&options).unwrap();
        let mut failures = Failures::default();
        let text = papers::sets(&target, &options, &mut failures);
        assert!(failures.none(), "{}", failures.0);
        assert_eq!(text.matches("| Expo3D2M").count(), 2, "{text}");
        let text = run_child(&Child::Batches("Expo3D2M".into()), &options).unwrap();
        assert_eq!(text.matches("measured best").count(), 4, "{text}");
    }

    #[test]
    fn both_on_the_kernels_own_sources() {
        let options = options("--hybrid --cases uniform3 --points 400");
        let (text, right) = run(Section::Hybrid, &options).unwrap();
        assert!(right && text.contains("| uniform3"), "{text}");
        let options = self::options("--hybrid-papers --cases Hybrid3D2M --points 400");
        let (text, right) = run(Section::HybridPapers, &options).unwrap();
        assert!(right && text.matches("| Hybrid3D2M").count() >= 3, "{text}");
    }

    #[test]
    fn the_nearest_on_the_kernels_own_sources() {
        let options = options("--gpu-knn --cases uniform2-k8,few3-k8 --points 400 --peers none");
        let (text, right) = run(Section::GpuKnn, &options).unwrap();
        assert!(right, "{text}");
        // In both types, each with its phases; the second in one.
        assert_eq!(text.matches("| uniform2-k8").count(), 4, "{text}");
        assert_eq!(text.matches("| few3-k8").count(), 2, "{text}");
        let options = self::options("--knn-papers --cases Unif2D,Expo4D --points 150");
        let (text, right) = run(Section::KnnPapers, &options).unwrap();
        assert!(right, "{text}");
        // For three k in three tables, for one in the overheads, and for one with other options.
        assert_eq!(text.matches("| Expo4D").count(), 11, "{text}");
        assert_eq!(text.matches("| Unif2D").count(), 12, "{text}");
    }

    #[test]
    fn failures_are_kept() {
        let mut failures = Failures::default();
        assert_eq!(failures.keep("one", Ok(1)), Some(1));
        assert!(failures.none());
        assert_eq!(failures.keep::<u8>("two", Err("lost".into())), None);
        assert_eq!(failures.0, "- **two failed: lost**\n");
    }
}
