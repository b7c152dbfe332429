#![no_main]

use nearjoin_io::Format;

libfuzzer_sys::fuzz_target!(|input: &[u8]| nearjoin_fuzz::read(Format::Npy, input));
