//! The small vector trait that every kernel is written over.

use crate::scalar::Scalar;

/// A SIMD register of `f32` or `f64`, with the few operations the joins need.
///
/// Masks have one bit per lane, lane 0 lowest.
///
/// # Safety
/// Every function requires that the running processor has the instruction set of the
/// implementing type; pointers must be valid for `LANES` elements, aligned or not.
#[allow(clippy::missing_safety_doc)]
pub(super) trait Vector: Copy {
    type Lane: Scalar;
    /// `LANES` values of `u32`: the names of the candidates in the lanes.
    type Labels: Copy;
    const LANES: usize;
    /// Whether `mul_add` rounds once. Where it does not, decisions near ε are left open.
    const FUSED: bool;

    unsafe fn splat(x: Self::Lane) -> Self;
    unsafe fn load(from: *const Self::Lane) -> Self;
    unsafe fn store(self, to: *mut Self::Lane);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn abs(self) -> Self;
    /// `if self > other { self } else { other }`: a NaN on the right stays a NaN.
    unsafe fn max(self, other: Self) -> Self;
    /// `if self < other { self } else { other }`.
    unsafe fn min(self, other: Self) -> Self;
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    /// The bits of both.
    unsafe fn with_bits(self, bits: Self) -> Self;
    /// The bits of `self` that `bits` has not.
    unsafe fn without_bits(self, bits: Self) -> Self;
    /// Lanes in which `self ≤ other`; false where either is NaN.
    unsafe fn le(self, other: Self) -> u32;

    /// Lanes in which `self < other`; false where either is NaN.
    unsafe fn lt(self, other: Self) -> u32;
    /// Lanes in which `self = other`; false where either is NaN.
    unsafe fn eq(self, other: Self) -> u32;
    /// The lanes of `yes` that are in the mask, and of `no` elsewhere.
    unsafe fn select(mask: u32, yes: Self, no: Self) -> Self;

    /// `sum` and the number of lanes in a mask.
    #[inline(always)]
    unsafe fn add_popcount(sum: u32, mask: u32) -> u32 {
        sum + mask.count_ones()
    }

    unsafe fn splat_label(label: u32) -> Self::Labels;
    unsafe fn load_labels(from: *const u32) -> Self::Labels;
    unsafe fn store_labels(labels: Self::Labels, to: *mut u32);
    unsafe fn labels_ne(a: Self::Labels, b: Self::Labels) -> u32;
    unsafe fn labels_lt(a: Self::Labels, b: Self::Labels) -> u32;
    unsafe fn select_labels(mask: u32, yes: Self::Labels, no: Self::Labels) -> Self::Labels;
    /// A label of `a` and one of `b` in turn: those of the lower lanes, and of the upper.
    unsafe fn shuffle_labels(a: Self::Labels, b: Self::Labels) -> (Self::Labels, Self::Labels);
    /// Writes the labels of the lanes in `mask`, packed, to `to`. May write up to
    /// `LANES` elements, whatever the mask.
    unsafe fn compress(labels: Self::Labels, mask: u32, to: *mut u32);
    /// The same for the lanes of `self`.
    unsafe fn compress_lanes(self, mask: u32, to: *mut Self::Lane);
}

/// Implements [`Vector`] for a register type from its intrinsics.
///
/// `plain` lists set, load, store, add, subtract, maximum, minimum, fused multiply-add, or and
/// and-not, which take and return registers; the rest are given as expressions.
#[cfg(target_arch = "x86_64")]
macro_rules! vector {
    (
        $name:ident($register:ty) of $lanes:literal $lane:ty, named by $labels:ty;
        plain: $set:path, $load:path, $store:path, $add:path, $sub:path, $max:path, $min:path,
            $fma:path, $or:path, $and_not:path;
        abs: |$x:ident| $abs:expr;
        compare: $compare:ident;
        select: |$sel_mask:ident, $yes:ident, $no:ident| $select:expr, $select_labels:expr;
        labels: |$label:ident| $set_label:expr, |$from:ident| $load_labels:expr,
            |$stored:ident, $label_to:ident| $store_labels:expr;
        ne: |$ne_a:ident, $ne_b:ident| $ne:expr;
        lt: |$lt_a:ident, $lt_b:ident| $labels_lt:expr;
        shuffle: |$shuffle_a:ident, $shuffle_b:ident| $shuffle:expr;
        compress: |$names:ident, $mask:ident, $to:ident| $compress:expr, $compress_lanes:expr;
    ) => {
        #[derive(Clone, Copy)]
        #[repr(transparent)]
        pub(super) struct $name($register);

        // SAFETY of every block below: the trait asks its caller for the instruction set
        // and for pointers that are valid for a whole register.
        impl Vector for $name {
            type Lane = $lane;
            type Labels = $labels;
            const LANES: usize = $lanes;
            const FUSED: bool = true;

            #[inline(always)]
            unsafe fn splat(x: $lane) -> Self {
                // SAFETY: as above.
                unsafe { $name($set(x)) }
            }
            #[inline(always)]
            unsafe fn load(from: *const $lane) -> Self {
                // SAFETY: as above.
                unsafe { $name($load(from)) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $lane) {
                // SAFETY: as above.
                unsafe { $store(to, self.0) }
            }
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($add(self.0, other.0)) }
            }
            #[inline(always)]
            unsafe fn sub(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($sub(self.0, other.0)) }
            }
            #[inline(always)]
            unsafe fn max(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($max(self.0, other.0)) }
            }
            #[inline(always)]
            unsafe fn min(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($min(self.0, other.0)) }
            }
            #[inline(always)]
            unsafe fn with_bits(self, bits: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($or(self.0, bits.0)) }
            }
            #[inline(always)]
            unsafe fn without_bits(self, bits: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($and_not(bits.0, self.0)) }
            }
            #[inline(always)]
            unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($fma(self.0, b.0, c.0)) }
            }
            #[inline(always)]
            unsafe fn abs(self) -> Self {
                let $x = self.0;
                // SAFETY: as above.
                unsafe { $name($abs) }
            }
            #[inline(always)]
            unsafe fn le(self, other: Self) -> u32 {
                // SAFETY: as above.
                unsafe { $compare!(_CMP_LE_OQ, self.0, other.0) }
            }
            #[inline(always)]
            unsafe fn lt(self, other: Self) -> u32 {
                // SAFETY: as above.
                unsafe { $compare!(_CMP_LT_OQ, self.0, other.0) }
            }
            #[inline(always)]
            unsafe fn eq(self, other: Self) -> u32 {
                // SAFETY: as above.
                unsafe { $compare!(_CMP_EQ_OQ, self.0, other.0) }
            }
            #[inline(always)]
            unsafe fn select($sel_mask: u32, yes: Self, no: Self) -> Self {
                let ($yes, $no) = (yes.0, no.0);
                // SAFETY: as above.
                unsafe { $name($select) }
            }
            #[inline(always)]
            unsafe fn select_labels($sel_mask: u32, $yes: $labels, $no: $labels) -> $labels {
                // SAFETY: as above.
                unsafe { $select_labels }
            }
            #[inline(always)]
            unsafe fn store_labels($stored: $labels, $label_to: *mut u32) {
                // SAFETY: as above.
                unsafe { $store_labels }
            }
            #[inline(always)]
            unsafe fn labels_lt($lt_a: $labels, $lt_b: $labels) -> u32 {
                // SAFETY: as above.
                unsafe { $labels_lt }
            }
            #[inline(always)]
            unsafe fn shuffle_labels(
                $shuffle_a: $labels,
                $shuffle_b: $labels,
            ) -> ($labels, $labels) {
                // SAFETY: as above.
                unsafe { $shuffle }
            }
            #[inline(always)]
            unsafe fn add_popcount(sum: u32, mask: u32) -> u32 {
                // SAFETY: as above.
                unsafe { super::vector::add_popcnt(sum, mask) }
            }
            #[inline(always)]
            unsafe fn splat_label(label: u32) -> $labels {
                let $label = label as i32;
                // SAFETY: as above.
                unsafe { $set_label }
            }
            #[inline(always)]
            unsafe fn load_labels($from: *const u32) -> $labels {
                // SAFETY: as above.
                unsafe { $load_labels }
            }
            #[inline(always)]
            unsafe fn labels_ne($ne_a: $labels, $ne_b: $labels) -> u32 {
                // SAFETY: as above.
                unsafe { $ne }
            }
            #[inline(always)]
            unsafe fn compress($names: $labels, $mask: u32, $to: *mut u32) {
                // SAFETY: as above.
                unsafe { $compress }
            }
            #[inline(always)]
            unsafe fn compress_lanes(self, $mask: u32, $to: *mut $lane) {
                let $names = self.0;
                // SAFETY: as above.
                unsafe { $compress_lanes }
            }
        }
    };
}
#[cfg(target_arch = "x86_64")]
pub(super) use vector;

/// The `popcnt` instruction, and an addition. Left to itself the compiler gathers the
/// counts of several masks into a vector and counts and adds there, which takes as long as
/// the whole loop around it.
///
/// # Safety
/// The processor must have the instruction, as every one with AVX2 does.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) unsafe fn add_popcnt(mut sum: u32, mask: u32) -> u32 {
    // SAFETY: the instructions read and write registers only; the caller promises that
    // the processor has them.
    unsafe {
        core::arch::asm!(
            "popcnt {count:e}, {mask:e}",
            "add {sum:e}, {count:e}",
            count = out(reg) _,
            mask = in(reg) mask,
            sum = inlateout(reg) sum,
            options(pure, nomem, nostack)
        );
    }
    sum
}

/// One step of a metric, over lanes.
pub(super) trait Norm {
    /// # Safety
    /// As for [`Vector`].
    unsafe fn step<V: Vector>(acc: V, difference: V) -> V;
}

pub(super) struct L2;
pub(super) struct L1;
pub(super) struct Linf;

impl Norm for L2 {
    #[inline(always)]
    unsafe fn step<V: Vector>(acc: V, difference: V) -> V {
        // SAFETY: the caller promises the instruction set.
        unsafe { difference.mul_add(difference, acc) }
    }
}

impl Norm for L1 {
    #[inline(always)]
    unsafe fn step<V: Vector>(acc: V, difference: V) -> V {
        // SAFETY: the caller promises the instruction set.
        unsafe { acc.add(difference.abs()) }
    }
}

impl Norm for Linf {
    #[inline(always)]
    unsafe fn step<V: Vector>(acc: V, difference: V) -> V {
        // SAFETY: the caller promises the instruction set.
        unsafe { acc.max(difference.abs()) }
    }
}
