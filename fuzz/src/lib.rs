//! What the targets share: options from the first bytes, the file from the rest.

use std::sync::Once;

use nearjoin_io::{DType, Format, ReadOptions, read_bytes};

/// Bytes of an input that choose the options.
pub const OPTIONS: usize = 2;

/// Reads the input as a file of this format. It may be refused; it may not panic, abort or
/// take memory that the file does not account for.
pub fn read(format: Format, input: &[u8]) {
    quiet_panics();
    let Some((&[choice, delimiter], file)) = input.split_first_chunk::<OPTIONS>() else { return };
    let names = |names: &[&str]| Some(names.iter().map(|name| name.to_string()).collect());
    let options = ReadOptions {
        format: Some(format),
        columns: match choice & 3 {
            0 => names(&["x", "y"]),
            1 => names(&["v"]),
            2 => names(&["1", "0"]),
            _ => None,
        },
        id: match choice >> 2 & 3 {
            0 => Some("id".into()),
            1 => Some("0".into()),
            _ => None,
        },
        dtype: match choice >> 4 & 3 {
            0 => Some(DType::F32),
            1 => Some(DType::F64),
            _ => None,
        },
        header: match choice >> 6 {
            0 => Some(true),
            1 => Some(false),
            _ => None,
        },
        delimiter: matches!(delimiter, b' '..=b'~').then_some(delimiter),
    };
    if let Ok(loaded) = read_bytes("input", file.to_vec().into(), &options) {
        assert_eq!(loaded.columns.len(), loaded.points.dimension());
        assert!(loaded.ids.is_none_or(|ids| ids.len() == loaded.points.len()));
    }
}

/// The decoders' panics are caught by the reader and turned into errors, but the fuzzer's hook
/// would abort at them. A panic that the reader lets through still ends the process.
fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| std::panic::set_hook(Box::new(|_| ())));
}
