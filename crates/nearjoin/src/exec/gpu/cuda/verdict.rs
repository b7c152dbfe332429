//! Whether a driver and its GPU will do; and if not, what is missing and what to do about it,
//! in a clause that follows a colon.

#![forbid(unsafe_code)]

use super::api::{Code, code};

/// The version of CUDA that the driver must support: the PTX is of that version.
const VERSION: (u32, u32) = (12, 0);

/// The compute capability that the PTX is compiled for: Turing.
const CAPABILITY: (u32, u32) = (7, 5);

const INSTALL: &str = "an NVIDIA driver for CUDA 12.0 or later (525 or later)";

pub(super) fn no_library(library: &str, error: &str) -> String {
    // In the words of Linux and macOS, and in the number of Windows. A library that lacks one
    // of its own is named by the other's name, which is worth telling, as all else is.
    let error = error.trim();
    let absent = error.to_lowercase().contains("no such file") && error.contains(library)
        || error.contains("os error 126");
    match absent {
        true => format!("there is no NVIDIA driver ({library} is not found): install {INSTALL}"),
        false => format!("the NVIDIA driver cannot be opened ({error}): install {INSTALL}"),
    }
}

pub(super) fn missing(function: &str) -> String {
    format!("the NVIDIA driver is too old or damaged, it has no {function}: install {INSTALL}")
}

/// The version out of the driver's number for it: 12040 is 12.4.
pub(super) fn version(number: i32) -> Result<(u32, u32), String> {
    let number = u32::try_from(number).unwrap_or(0);
    let (major, minor) = (number / 1000, number % 1000 / 10);
    match (major, minor) >= VERSION {
        true => Ok((major, minor)),
        false => Err(format!(
            "the NVIDIA driver is for CUDA {major}.{minor} and must be for {}.{} or later: \
             update the driver (to 525 or later)",
            VERSION.0, VERSION.1
        )),
    }
}

/// Why a driver did not start. `visible` is the value of `CUDA_VISIBLE_DEVICES`.
pub(super) fn not_started(code: Code, said: &str, visible: Option<&str>) -> String {
    match code {
        code::NO_DEVICE => no_device(visible),
        code::STUB_LIBRARY => "the library found is the CUDA toolkit's stand-in for the NVIDIA \
             driver: take the folder `stubs` off the library path, and install a driver"
            .into(),
        code::DRIVER_MISMATCH => "the NVIDIA driver's library and kernel module are of different \
             versions: restart the machine"
            .into(),
        _ => format!(
            "the NVIDIA driver does not start, {said}: see whether `nvidia-smi` works; restart \
             the machine or install the driver anew"
        ),
    }
}

pub(super) fn enough(devices: i32, visible: Option<&str>) -> Result<(), String> {
    if devices > 0 { Ok(()) } else { Err(no_device(visible)) }
}

fn no_device(visible: Option<&str>) -> String {
    match visible {
        Some(value) => format!(
            "the NVIDIA driver sees no GPU, and CUDA_VISIBLE_DEVICES is {value:?}: unset it, or \
             name a GPU that is there"
        ),
        None => "the NVIDIA driver sees no GPU: see whether `nvidia-smi` shows one".into(),
    }
}

pub(super) fn capable(name: &str, (major, minor): (u32, u32)) -> Result<(), String> {
    match (major, minor) >= CAPABILITY {
        true => Ok(()),
        false => Err(format!(
            "the GPU {name} is too old, it has compute capability {major}.{minor} and {}.{} is \
             needed: Turing (2018) or later",
            CAPABILITY.0, CAPABILITY.1
        )),
    }
}

pub(super) fn not_opened(name: &str, code: Code, said: &str) -> String {
    match code {
        code::OUT_OF_MEMORY => format!(
            "the memory of the GPU {name} is all taken: end other programs that use it (see \
             `nvidia-smi`)"
        ),
        _ => format!("the GPU {name} cannot be opened, {said}: see `nvidia-smi`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(version(12_000), Ok((12, 0)));
        assert_eq!(version(12_040), Ok((12, 4)));
        assert_eq!(version(13_010), Ok((13, 1)));
        for (number, said) in [(11_080, "11.8"), (9_020, "9.2"), (0, "0.0"), (-1, "0.0")] {
            let reason = version(number).unwrap_err();
            assert!(reason.contains(&format!("CUDA {said} ")), "{reason}");
            assert!(reason.contains("12.0") && reason.contains("update"), "{reason}");
        }
    }

    #[test]
    fn capabilities() {
        for good in [(7, 5), (8, 0), (9, 0), (12, 0)] {
            assert_eq!(capable("T4", good), Ok(()));
        }
        for poor in [(7, 0), (6, 9), (5, 2)] {
            let reason = capable("V100", poor).unwrap_err();
            assert!(reason.contains("V100") && reason.contains("7.5"), "{reason}");
            assert!(reason.contains(&format!("{}.{}", poor.0, poor.1)), "{reason}");
        }
    }

    #[test]
    fn devices() {
        assert_eq!(enough(1, Some("")), Ok(()));
        assert!(enough(0, None).unwrap_err().contains("no GPU"));
        assert!(enough(0, Some("7")).unwrap_err().contains("CUDA_VISIBLE_DEVICES is \"7\""));
        assert_eq!(not_started(code::NO_DEVICE, "", None), enough(-1, None).unwrap_err());
    }

    #[test]
    fn drivers_that_do_not_start() {
        let unknown = not_started(999, "cuInit failed (CUDA_ERROR_UNKNOWN)", None);
        assert!(unknown.contains("CUDA_ERROR_UNKNOWN") && unknown.contains("nvidia-smi"));
        assert!(not_started(code::STUB_LIBRARY, "", None).contains("stubs"));
        assert!(not_started(code::DRIVER_MISMATCH, "", None).contains("restart"));
        assert!(not_opened("T4", code::OUT_OF_MEMORY, "").contains("all taken"));
        assert!(not_opened("T4", 46, "busy").contains("busy"));
    }

    #[test]
    fn libraries_that_are_not_there_or_are_broken() {
        let absent = no_library("libcuda.so.1", "libcuda.so.1: No such file or directory");
        assert!(absent.contains("no NVIDIA driver") && absent.contains("install"), "{absent}");
        for said in ["libcuda.so.1: file too short", "libnvidia-x.so: No such file or directory"] {
            let broken = no_library("libcuda.so.1", said);
            assert!(broken.contains(said) && broken.contains("install"), "{broken}");
        }
        assert!(missing("cuInit").contains("cuInit"));
    }
}
