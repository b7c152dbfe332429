//! `nearjoin info` with all kinds of CUDA drivers: libraries of a few lines, made here, which
//! are found before the system's own. The calibration file is `calibration` in the folder.

use std::fmt::Write;
use std::process::Command;

use crate::program::{Folder, Ran};

/// The functions that nearjoin asks the driver for.
const FUNCTIONS: &[&str] = &[
    "cuDriverGetVersion",
    "cuInit",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDeviceTotalMem_v2",
    "cuDevicePrimaryCtxRetain",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemsetD32Async",
    "cuStreamCreateWithPriority",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuModuleLoadDataEx",
    "cuModuleGetFunction",
    "cuFuncSetAttribute",
    "cuLaunchKernel",
    "cuGetErrorName",
    "cuGetErrorString",
];

/// A driver for CUDA 12.4 with one GPU that will do.
const GOOD: &[&str] = &[
    "int cuDriverGetVersion(int *version) { *version = 12040; return 0; }",
    "int cuDeviceGetCount(int *count) { *count = 1; return 0; }",
    "int cuDeviceGetName(char *name, int n, int device) { return strcpy(name, \"Sham\"), 0; }",
    "int cuDeviceGetAttribute(int *value, int attribute, int device)
         { *value = attribute == 75 ? 9 : attribute == 76 ? 0 : 132; return 0; }",
    "int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = 8ul << 30; return 0; }",
    "int cuMemGetInfo_v2(size_t *free, size_t *all)
         { *free = 2ul << 30; *all = 8ul << 30; return 0; }",
    "int cuGetErrorName(int code, char **name)
         { *name = code == 999 ? \"CUDA_ERROR_UNKNOWN\" : 0; return 0; }",
    "int cuCtxGetCurrent(void **context) { *context = 0; return 0; }",
];

/// The source of a driver that has these functions, and does nothing in all others.
fn driver(functions: &[&str]) -> String {
    let mut source = String::from("#include <stddef.h>\n#include <string.h>\n");
    for name in FUNCTIONS {
        let own = |function: &&&str| function.contains(&format!(" {name}("));
        match functions.iter().find(own).or_else(|| GOOD.iter().find(own)) {
            Some(function) => writeln!(source, "{function}"),
            None => writeln!(source, "int {name}() {{ return 0; }}"),
        }
        .expect("a string has room");
    }
    source
}

/// Runs the program with a driver made from a source; or `None` where there is no C compiler.
fn run(folder: &Folder, source: &str, arguments: &str) -> Option<Ran> {
    folder.write("driver.c", source);
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-w", "-o", "libcuda.so.1", "driver.c"]);
    let compiled = match compiler.current_dir(&folder.0).output() {
        Ok(output) => Ran::new(output),
        Err(_) => return None,
    };
    assert_eq!(compiled.code, Some(0), "{}", compiled.errors);
    let mut program = folder.command(arguments);
    program.env("LD_LIBRARY_PATH", &folder.0).env_remove("CUDA_VISIBLE_DEVICES");
    program.env("NEARJOIN_CALIBRATION", folder.path("calibration"));
    Some(Ran::new(program.output().expect("the program starts")))
}

/// What `nearjoin info` says of the GPU and of the devices.
fn info(source: &str) -> Option<(String, String)> {
    let ran = run(&Folder::new(), source, "info")?;
    Some((row(&ran, "GPU"), row(&ran, "devices")))
}

/// What a run of `nearjoin info` that went well says under a name.
fn row(ran: &Ran, name: &str) -> String {
    assert_eq!((ran.code, ran.errors.as_str()), (Some(0), ""), "{}", ran.said);
    let line = ran.said.lines().find_map(|line| line.strip_prefix(name));
    line.expect("a line of that name").trim().to_string()
}

/// A driver that will not do, and words of the reason.
#[track_caller]
fn refused(source: &str, words: &[&str]) {
    let Some((gpu, devices)) = info(source) else { return };
    assert!(gpu.starts_with("none: "), "{gpu}");
    for word in words {
        assert!(gpu.contains(word), "{word}: {gpu}");
    }
    assert_eq!(devices, "auto (cpu), cpu");
}

#[test]
fn a_driver_that_will_do() {
    let Some((gpu, devices)) = info(&driver(&[])) else { return };
    let said = "Sham, 8 GiB, of which 2 GiB are free, compute capability 9.0, driver for CUDA 12.4";
    assert_eq!(gpu.replace(".00 GiB", " GiB"), said);
    assert_eq!(devices, "auto (the fastest for joins within ε), cpu, gpu, hybrid");
}

/// Without a GPU a join that asks for one fails before any work, and others go on.
#[test]
fn a_join_without_a_gpu() {
    let folder = Folder::new();
    folder.write("p.csv", "x,y\n0,0\n0.3,0.4\n");
    let none = driver(&["int cuDeviceGetCount(int *count) { *count = 0; return 0; }"]);
    let Some(ran) = run(&folder, &none, "within p.csv --eps 1 --device gpu -o o.csv") else {
        return;
    };
    assert_eq!((ran.code, ran.said.as_str()), (Some(1), ""), "{}", ran.errors);
    assert!(ran.errors.starts_with("error: the device gpu cannot be used: "), "{}", ran.errors);
    assert!(ran.errors.contains("no GPU") && ran.errors.lines().count() == 1, "{}", ran.errors);
    assert!(!folder.names().contains(&"o.csv".to_string()));
    let ran = run(&folder, &none, "within p.csv --eps 1 --count -v").expect("as before");
    assert_eq!((ran.code, ran.said.as_str()), (Some(0), "2\n"), "{}", ran.errors);
    assert!(ran.errors.contains("no gpu: "), "{}", ran.errors);
}

/// Without a GPU the CPU joins alone, and says why.
#[test]
fn a_join_that_can_do_without_a_gpu() {
    let folder = Folder::new();
    folder.write("p.csv", "x,y\n0,0\n0.3,0.4\n");
    let none = driver(&["int cuDeviceGetCount(int *count) { *count = 0; return 0; }"]);
    let run = |arguments: &str| {
        let arguments = format!("within p.csv --eps 1 --device {arguments}");
        let ran = run(&folder, &none, &arguments)?;
        assert_eq!(ran.code, Some(0), "{arguments}: {}", ran.errors);
        Some(ran)
    };
    let both = "hybrid --partitioning static-queries --count --stats s.json --report r.html";
    let Some(ran) = run(both) else { return };
    assert_eq!(ran.said, "2\n");
    assert!(ran.errors.starts_with("note: the CPU joins alone: "), "{}", ran.errors);
    assert!(ran.errors.contains("no GPU"), "{}", ran.errors);
    let read = |name: &str| std::fs::read_to_string(folder.path(name)).expect("a file");
    let stats: serde_json::Value = serde_json::from_str(&read("s.json")).expect("JSON");
    assert_eq!(stats["device"], "cpu");
    assert!(stats["gpu"].is_null() && stats["hybrid"].is_null(), "{stats}");
    assert!(read("r.html").contains("hybrid, which took the cpu: "), "{}", read("r.html"));
    assert_eq!(run("hybrid --count -q").expect("as before").errors, "");
    let explained = run("hybrid --explain").expect("as before");
    assert!(explained.said.contains("no gpu: "), "{}", explained.said);
    assert_eq!(explained.errors, "");
    let rescued = run("gpu --rescue --count").expect("as before");
    assert_eq!(rescued.said, "2\n");
    assert!(rescued.errors.starts_with("note: the CPU joins alone: "), "{}", rescued.errors);
}

/// The plan for a GPU is explained by the driver's word alone: nothing is run.
#[test]
fn a_join_with_a_gpu_is_explained() {
    let folder = Folder::new();
    folder.nearjoin("gen uniform -n 2e4 -d 2 -o p.npy -q");
    let plan = "within p.npy --eps 1 --device gpu --cooperation thread --threads-per-query 8 \
                --schedule work-queue --gpu-memory 1GiB --explain";
    let Some(ran) = run(&folder, &driver(&[]), plan) else { return };
    assert_eq!((ran.code, ran.errors.as_str()), (Some(0), ""), "{}", ran.said);
    for words in ["gpu: Sham", "by thread, 8 to a query", "work-queue", "1.00 GiB on the gpu"] {
        assert!(ran.said.contains(words), "{words}: {}", ran.said);
    }
}

#[test]
fn a_driver_without_functions() {
    refused("int nothing;", &["cuDriverGetVersion", "install"]);
    refused(
        "int cuDriverGetVersion(int *version) { *version = 12000; return 0; }
         int cuInit() { return 0; }",
        &["too old or damaged", "install"],
    );
}

#[test]
fn a_driver_that_is_too_old() {
    let source = "int cuDriverGetVersion(int *version) { *version = 11040; return 0; }";
    refused(source, &["11.4", "12.0", "update"]);
    refused("int cuDriverGetVersion() { return 34; }", &["stubs"]);
}

#[test]
fn a_driver_that_does_not_start() {
    let unknown = driver(&["int cuInit() { return 999; }"]);
    refused(&unknown, &["CUDA_ERROR_UNKNOWN", "nvidia-smi"]);
    // A code that no bindings know.
    refused(&driver(&["int cuInit() { return 123456; }"]), &["error 123456"]);
    refused(&driver(&["int cuInit() { return 803; }"]), &["restart the machine"]);
}

#[test]
fn a_driver_without_a_gpu() {
    let none = "int cuDeviceGetCount(int *count) { *count = 0; return 0; }";
    refused(&driver(&[none]), &["no GPU"]);
    refused(&driver(&["int cuInit() { return 100; }"]), &["no GPU"]);
}

#[test]
fn a_gpu_that_will_not_do() {
    let old = "int cuDeviceGetAttribute(int *value, int attribute, int device)
        { *value = attribute == 75 ? 6 : 1; return 0; }";
    refused(&driver(&[old]), &["Sham", "6.1", "7.5"]);
    let full = "int cuDevicePrimaryCtxRetain() { return 2; }";
    refused(&driver(&[full]), &["Sham", "memory", "taken"]);
    refused(
        &driver(&["int cuStreamCreateWithPriority() { return 2; }"]),
        &["Sham", "memory", "taken"],
    );
    refused(&driver(&["int cuDevicePrimaryCtxRetain() { return 46; }"]), &["Sham", "error 46"]);
}

#[test]
fn a_calibration_is_told() {
    let folder = Folder::new();
    let source = driver(&[]);
    let told = || Some(row(&run(&folder, &source, "info")?, "calibration"));
    let Some(nothing) = told() else { return };
    assert_eq!(nothing, "not calibrated: nearjoin info --calibrate measures this machine");
    let threads = std::thread::available_parallelism().unwrap();
    let text = format!("version = 1\ndevice = Sham\nthreads = {threads}\ngpu = 2\n");
    folder.write("calibration", &text);
    let path = folder.path("calibration").display().to_string();
    assert_eq!(told().unwrap(), format!("calibrated by {path}"));
    folder.write("calibration", &text.replace("Sham", "Other"));
    let other = format!("calibration of another machine (Other, {threads} threads): not used");
    assert_eq!(told().unwrap(), other);
    folder.write("calibration", &text.replace("gpu = 2", "gpu = two"));
    let damage = "line 4: gpu = \"two\" must be a positive number";
    assert_eq!(told().unwrap(), format!("calibration not used: {path}: {damage}"));
}

#[test]
fn a_calibration_is_between_two() {
    let folder = Folder::new();
    let none = driver(&["int cuDeviceGetCount(int *count) { *count = 0; return 0; }"]);
    let Some(ran) = run(&folder, &none, "info --calibrate") else { return };
    assert_eq!((ran.code, ran.said.as_str()), (Some(1), ""), "{}", ran.errors);
    let said = "error: there is nothing to calibrate between without a gpu: ";
    assert!(ran.errors.starts_with(said) && ran.errors.lines().count() == 1, "{}", ran.errors);
    assert!(!folder.path("calibration").exists());
    assert!(!run(&folder, &none, "info").unwrap().said.contains("calibrat"));
}

/// Where no file may be, nothing is measured.
#[test]
fn a_calibration_without_a_place() {
    let folder = Folder::new();
    let Some(ran) = run(&folder, &driver(&[]), "info") else { return };
    assert_eq!(ran.code, Some(0), "{}", ran.errors);
    let with = |arguments: &str| {
        let mut program = folder.command(arguments);
        program.env("LD_LIBRARY_PATH", &folder.0).env("NEARJOIN_CALIBRATION", "");
        Ran::new(program.output().expect("the program starts"))
    };
    let told = row(&with("info"), "calibration");
    assert_eq!(told, "not calibrated: NEARJOIN_CALIBRATION is empty");
    let ran = with("info --calibrate");
    assert_eq!((ran.code, ran.said.as_str()), (Some(1), ""), "{}", ran.errors);
    assert!(ran.errors.contains("set NEARJOIN_CALIBRATION to the path"), "{}", ran.errors);
}
