//! Places values along an axis of a picture, and finds round numbers for its marks. `trace/plot` and the charts of
//! `bench` call it.

/// Numbers between 0 and `max`, about `count` of them, each a round multiple of a power of `base`.
#[must_use]
pub fn ticks(max: f64, count: u32, base: f64) -> Vec<f64> {
    if !(max.is_finite() && max > 0.0) || count == 0 {
        return vec![0.0];
    }
    let wanted = max / f64::from(count);
    let power = base.powf(wanted.log(base).floor());
    let rounds: &[f64] = if base > 10.0 {
        &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0]
    } else {
        &[1.0, 2.0, 5.0, 10.0]
    };
    let step = rounds.iter().map(|round| round * power).find(|step| *step >= wanted).unwrap_or(wanted);
    (0..=count * 2).map(|number| f64::from(number) * step).take_while(|at| *at <= max * 1.0001).collect()
}

/// An axis from 0 to `max` between two positions.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    /// The largest value.
    pub max: f64,
    /// Position of 0, in pixels.
    pub from: f64,
    /// Position of the largest value.
    pub to: f64,
}

impl Axis {
    /// Position of a value.
    #[must_use]
    pub fn place(&self, value: f64) -> f64 {
        let part = if self.max > 0.0 { (value / self.max).clamp(0.0, 1.0) } else { 0.0 };
        self.from + (self.to - self.from) * part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(ticks(10.0, 5, 10.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(0.9, 4, 10.0), [0.0, 0.5]);
        assert_eq!(ticks(3.0 * 1024.0, 4, 1024.0), [0.0, 1024.0, 2048.0, 3072.0]);
        assert_eq!(ticks(0.0, 4, 10.0), [0.0]);
        assert_eq!(ticks(f64::NAN, 4, 10.0), [0.0]);
        let axis = Axis { max: 10.0, from: 100.0, to: 0.0 };
        assert_eq!((axis.place(0.0), axis.place(5.0), axis.place(99.0)), (100.0, 50.0, 0.0));
    }
}
