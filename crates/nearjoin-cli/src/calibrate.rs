//! `nearjoin info --calibrate`: how fast this machine is, measured and kept.

use std::fs;
use std::io::Write;
use std::path::Path;

use nearjoin::{Error, Monitor, gpu};
use nearjoin_io::quote;
use nearjoin_io::write::Target;

use crate::failure::{Failure, Result, check_stdout, say};
use crate::interrupt::{self, Written};
use crate::{info, number, system};

pub(crate) fn run() -> Result {
    check_stdout()?;
    if let Err(error) = gpu::find() {
        let reason = match error {
            Error::Device { reason, .. } => reason,
            error => error.to_string(),
        };
        return Err(Failure::failed(format!(
            "there is nothing to calibrate between without a gpu: {reason}"
        )));
    }
    let file = gpu::calibration_file().ok_or_else(|| {
        Failure::failed(
            "there is no place for the calibration: set NEARJOIN_CALIBRATION to the path of a file",
        )
    })?;
    interrupt::watch(&Monitor::default())?;
    let target = create(&file)?;
    let found = gpu::calibrate()?;
    let processor = system::processor().unwrap_or_else(|| "unknown".into());
    write(target, &found.to_text(&processor))?;
    let speed = |bytes: f64| format!("{} GB/s", number::figures(bytes / 1e9, 3));
    interrupt::leaves(Written::Answer);
    say(info::table(&[
        ("processor", format!("{processor}, {} threads", found.threads)),
        ("GPU", found.device.clone()),
        ("cpu", against(found.cpu.measured, found.cpu.expected)),
        ("gpu", against(found.gpu.measured, found.gpu.expected)),
        ("bus", speed(found.calibration.bus)),
        ("landing", speed(found.calibration.landing)),
        ("written to", quote::path(&file)),
    ]))
}

/// A file in the making, in a folder that is made where it is not there.
fn create(file: &Path) -> Result<Target> {
    let folder = file.parent().unwrap_or(Path::new(""));
    fs::create_dir_all(folder).map_err(|error| {
        Failure::failed(format!("the folder {} could not be made: {error}", quote::path(folder)))
    })?;
    Ok(Target::create(file)?)
}

fn write(mut target: Target, text: &str) -> Result {
    target.write_all(text.as_bytes()).map_err(|error| {
        Failure::failed(format!("{} could not be written: {error}", target.name()))
    })?;
    target.commit()?;
    Ok(())
}

/// What was measured, beside what was expected.
fn against(measured: f64, expected: f64) -> String {
    let ratio = number::figures(measured / expected, 3);
    let (measured, expected) = (number::seconds(measured), number::seconds(expected));
    format!("{measured}, which is {ratio} times the {expected} that plans expect by default")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_into_a_folder_that_is_made() {
        let folder = std::env::temp_dir().join(format!("nearjoin-made-{}", std::process::id()));
        let file = folder.join("deeper").join("calibration");
        for text in ["cpu = 1\n", "cpu = 2\n"] {
            write(create(&file).unwrap(), text).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
        // A folder cannot be made in a file.
        let Err(Failure::Failed(said)) = create(&file.join("deeper")) else { panic!() };
        assert!(said.starts_with("the folder ") && said.contains("could not be made: "), "{said}");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_was_measured_stands_beside_what_was_expected() {
        assert_eq!(
            against(0.12, 0.1),
            "0.12 s, which is 1.2 times the 0.1 s that plans expect by default"
        );
    }
}
