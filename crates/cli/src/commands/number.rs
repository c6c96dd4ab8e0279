//! Conversions of numbers that cannot fail here.

/// A count as a fraction: exact below 2^53.
#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "for pictures, where the last digits do not show"
)]
pub(crate) fn to_float(count: u64) -> f64 {
    count as f64
}
