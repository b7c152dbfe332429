//! Points in files that Python reads.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use nearjoin::Scalar;

use crate::Result;

/// A matrix in a file of NumPy's format, for as long as this value lives.
pub(crate) struct Npy {
    pub(crate) path: PathBuf,
}

impl Npy {
    pub(crate) fn write<T: Scalar>(name: &str, numbers: &[T], columns: usize) -> Result<Self> {
        let name = format!("nearjoin-bench-{name}-{}.npy", std::process::id());
        let file = Npy { path: std::env::temp_dir().join(name) };
        let mut out = BufWriter::new(File::create(&file.path)?);
        out.write_all(&header::<T>(numbers.len() / columns, columns))?;
        out.write_all(T::as_bytes(numbers))?;
        out.flush()?;
        Ok(file)
    }
}

impl Drop for Npy {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Version 1.0: a dictionary as text, padded with spaces until the data begins at a multiple of 64.
fn header<T: Scalar>(rows: usize, columns: usize) -> Vec<u8> {
    const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";
    let order = if cfg!(target_endian = "big") { '>' } else { '<' };
    let text = format!(
        "{{'descr': '{order}f{}', 'fortran_order': False, 'shape': ({rows}, {columns}), }}",
        size_of::<T>()
    );
    let before = MAGIC.len() + 2;
    // A line feed ends it.
    let length = (before + text.len() + 1).next_multiple_of(64) - before;
    let mut header = MAGIC.to_vec();
    header.extend((length as u16).to_le_bytes());
    header.extend(format!("{text:<width$}\n", width = length - 1).bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_in_numpys_format() {
        let file = Npy::write("test", &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], 2).unwrap();
        let path = file.path.clone();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 128 + 24);
        assert_eq!(&bytes[..10], b"\x93NUMPY\x01\x00\x76\x00");
        assert_eq!(bytes[127], b'\n');
        let text = String::from_utf8_lossy(&bytes[10..128]);
        assert!(text.contains("'<f4'") && text.contains("(3, 2)"), "{text}");
        assert_eq!(&bytes[128..132], &1.0f32.to_le_bytes());
        drop(file);
        assert!(!path.exists());
    }
}
