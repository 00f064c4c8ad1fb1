//! Curves as SVG files.

use anyhow::{Context, anyhow};
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use serde::Serialize;
use std::path::Path;

/// A curve of more points than this is drawn without them.
const DENSE: usize = 40;
/// Width and height in pixels.
const SIZE: (u32, u32) = (720, 420);
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 90, 181),
    RGBColor(220, 50, 32),
    RGBColor(93, 58, 155),
    RGBColor(153, 79, 0),
    RGBColor(0, 108, 92),
    RGBColor(120, 120, 120),
    RGBColor(211, 95, 183),
];

/// One curve.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// As the legend names it.
    pub name: String,
    /// x and y, ascending in x.
    pub points: Vec<(f64, f64)>,
}

/// The marks of the axis below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Marks {
    /// At powers of two, each as far from the next.
    PowersOfTwo,
    /// As far from each other as their values.
    Even,
}

/// Some curves over one axis.
#[derive(Clone, Debug, Serialize)]
pub struct Plot {
    /// Of the file, without its extension.
    pub name: String,
    /// Above the curves.
    pub title: String,
    /// What x is.
    pub x: String,
    /// What y is.
    pub y: String,
    /// The marks of x.
    pub marks: Marks,
    /// The curves.
    pub curves: Vec<Curve>,
}

impl Plot {
    /// Writes it to `folder`.
    pub fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let path = folder.join(format!("{}.svg", self.name));
        std::fs::create_dir_all(folder)
            .with_context(|| format!("making the folder {}", folder.display()))?;
        let mut text = String::new();
        self.draw(&mut text).map_err(|error| anyhow!("drawing {}: {error}", path.display()))?;
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    fn draw<'a>(&self, text: &'a mut String) -> Result<(), Box<dyn std::error::Error + 'a>> {
        let points = || self.curves.iter().flat_map(|curve| curve.points.iter());
        let least = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
        let most = points().map(|point| point.0).fold(1.0, f64::max);
        let top = points().map(|point| point.1).fold(0.0, f64::max) * 1.08;
        let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut builder = ChartBuilder::on(&area);
        builder
            .caption(&self.title, ("sans-serif", 17))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(60);
        let (x, y) = (least.min(most)..most, 0.0..top.max(1e-9));
        match self.marks {
            Marks::PowersOfTwo => {
                self.draw_in(builder.build_cartesian_2d(x.log_scale().base(2.0), y)?)?;
            }
            Marks::Even => self.draw_in(builder.build_cartesian_2d(x, y)?)?,
        }
        area.present()?;
        Ok(())
    }

    fn draw_in<'a, X>(
        &self,
        mut chart: ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, RangedCoordf64>>,
    ) -> Result<(), Box<dyn std::error::Error + 'a>>
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        // So many points are a line of their own.
        let is_dense = self.curves.iter().any(|curve| curve.points.len() > DENSE);
        let radius = if is_dense { 0 } else { 3 };
        chart
            .configure_mesh()
            .x_desc(&self.x)
            .y_desc(&self.y)
            .x_label_formatter(&|x| short(*x))
            .light_line_style(WHITE)
            .draw()?;
        for (curve, colour) in self.curves.iter().zip(COLOURS.iter().cycle()) {
            let colour = *colour;
            chart
                .draw_series(
                    LineSeries::new(curve.points.iter().copied(), colour.stroke_width(2))
                        .point_size(radius),
                )?
                .label(&curve.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(RGBColor(160, 160, 160))
            .position(match self.marks {
                Marks::PowersOfTwo => SeriesLabelPosition::LowerRight,
                Marks::Even => SeriesLabelPosition::LowerMiddle,
            })
            .draw()?;
        Ok(())
    }
}

/// `4096` as `4K`.
fn short(value: f64) -> String {
    match value {
        v if v >= 1_048_576.0 => format!("{}M", v / 1_048_576.0),
        v if v >= 4096.0 => format!("{}K", v / 1024.0),
        // Marks that are computed are a little off.
        v => format!("{}", (v * 1000.0).round() / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_names_its_curves_and_axes() {
        let curve = |name: &str| Curve {
            name: name.to_owned(),
            points: vec![(4096.0, 1.0), (8192.0, 2.0), (65536.0, 1.5)],
        };
        let plot = Plot {
            name: "test".to_owned(),
            title: "A title".to_owned(),
            x: "stripe_size".to_owned(),
            y: "MB/s".to_owned(),
            marks: Marks::PowersOfTwo,
            curves: vec![curve("4K writes"), curve("1M writes")],
        };
        let folder = tempfile::tempdir().unwrap();
        plot.write(folder.path()).unwrap();
        let text = std::fs::read_to_string(folder.path().join("test.svg")).unwrap();
        for part in ["<svg", "A title", "4K writes", "1M writes", "stripe_size", "64K"] {
            assert!(text.contains(part), "{part}");
        }
    }
}
