//! What PTX says of a kernel's parameters: the driver reads as many bytes of the arguments as
//! the kernel has parameters for, so they are compared before it does.

#![forbid(unsafe_code)]

use crate::exec::gpu::driver::Args;

/// The sizes in bytes of the parameters of a kernel, or `None` if there is no such kernel.
///
/// They are declared as in `.entry name(.param .u64 a, .param .align 8 .b8 b[48])`.
pub(super) fn parameters(ptx: &str, name: &str) -> Option<Vec<usize>> {
    let entries = ptx.split(".entry").skip(1);
    let mut lists = entries.filter_map(|entry| entry.split_once('('));
    let (_, rest) = lists.find(|(entry, _)| entry.trim() == name)?;
    let (list, _) = rest.split_once(')')?;
    list.split(',').filter(|parameter| !parameter.trim().is_empty()).map(size).collect()
}

fn size(parameter: &str) -> Option<usize> {
    let bits = |word: &str| match word.strip_prefix('.')?.split_at_checked(1)? {
        ("b" | "u" | "s" | "f", bits) => bits.parse::<usize>().ok(),
        _ => None,
    };
    let element = parameter.split_whitespace().find_map(bits)? / 8;
    let elements = match parameter.split_once('[') {
        Some((_, length)) => length.split_once(']')?.0.trim().parse().ok()?,
        None => 1,
    };
    Some(element * elements)
}

/// Whether arguments are as many, and each as large, as the parameters.
pub(super) fn fit(args: &Args, parameters: &[usize]) -> bool {
    let begins = args.offsets();
    let ends = begins.iter().skip(1).copied().chain([args.bytes().len()]);
    begins.len() == parameters.len()
        && begins.iter().zip(ends).zip(parameters).all(|((at, end), size)| at + size <= end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "
        .version 7.0
        .target sm_75
        .visible .entry empty()
        { ret; }
        .visible .entry several(
            .param .u64 several_param_0,
            .param .u64 .ptr .align 4 several_param_1,
            .param .align 8 .b8 several_param_2[48],
            .param .f32 several_param_3
        )
        { ret; }";

    #[test]
    fn parameters_are_found() {
        assert_eq!(parameters(PTX, "empty"), Some(vec![]));
        assert_eq!(parameters(PTX, "several"), Some(vec![8, 8, 48, 4]));
        assert_eq!(parameters(PTX, "sever"), None);
        assert_eq!(parameters("", "empty"), None);
    }

    #[test]
    fn arguments_that_do_not_fit_are_seen() {
        let several = parameters(PTX, "several").unwrap();
        let args = Args::new().u64(1).u64(2).structure(&[0; 6]);
        assert!(!fit(&args, &several));
        assert!(fit(&args.clone().f32(1.0), &several));
        assert!(!fit(&args.f32(1.0).u32(2), &several));
        assert!(!fit(&Args::new().u64(1).u64(2).structure(&[0; 5]).f32(1.0), &several));
        assert!(!fit(&Args::new().u32(1), &[8]));
        assert!(fit(&Args::new(), &[]));
    }
}
