//! Converts counts to floating-point numbers, exactly below 2^53. Called by the commands that draw: `trace` and `map`.

/// A count as a fraction: exact below 2^53.
#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "for pictures, where the last digits do not show"
)]
pub(crate) fn to_float(count: u64) -> f64 {
    count as f64
}
