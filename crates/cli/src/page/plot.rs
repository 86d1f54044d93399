//! Drawings of series: areas over time, bars, and lines, as SVG.

use super::palette::{Colour, GRID, INK};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::error::Error;
use std::fmt::Display;

/// Width of a drawing; a page scales it to the available width.
const WIDTH: u32 = 960;
/// Height of a drawing.
const HEIGHT: u32 = 250;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Drawn = Result<(), Box<dyn Error>>;

/// A series.
#[derive(Clone, Debug)]
pub struct Layer<'a> {
    /// The name, for a legend.
    pub name: &'a str,
    /// The colour.
    pub colour: Colour,
    /// The values, one for each column or place.
    pub values: Vec<f64>,
}

/// A horizontal line across a drawing, such as a budget.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Its height.
    pub at: f64,
    /// The colour.
    pub colour: Colour,
}

/// How values are written on the axes.
#[derive(Clone, Copy)]
pub struct Axes<'a> {
    /// The text at a place of the horizontal axis.
    pub x: &'a dyn Fn(f64) -> String,
    /// The text at a height.
    pub y: &'a dyn Fn(f64) -> String,
}

/// Draws layers on top of each other over `span`, the first one at the bottom.
#[must_use]
pub fn areas(layers: &[Layer<'_>], span: f64, limit: Option<Limit>, axes: Axes<'_>) -> String {
    let sums = running_sums(layers);
    let highest = highest(sums.last().map_or(&[][..], |top| top));
    let top = limit.map_or(highest, |limit| highest.max(limit.at));
    draw(|area| {
        let mut chart = chart(area, span, top, axes)?;
        for (layer, sums) in layers.iter().zip(&sums).rev() {
            let points = along(sums, span);
            chart.draw_series(AreaSeries::new(points, 0.0, layer.colour.drawn()))?;
        }
        if let Some(Limit { at, colour }) = limit {
            let line = [(0.0, at), (span, at)];
            chart.draw_series(LineSeries::new(line, colour.drawn().stroke_width(2)))?;
        }
        Ok(())
    })
}

/// Draws a bar at each place, with the layers on top of each other, the first one at the bottom. `axes.x` writes the
/// text at the left edge of a place.
#[must_use]
pub fn bars(layers: &[Layer<'_>], axes: Axes<'_>) -> String {
    let sums = running_sums(layers);
    let top = highest(sums.last().map_or(&[][..], |top| top));
    let places = sums.first().map_or(0, Vec::len);
    draw(|area| {
        let mut chart = chart(area, places as f64, top, axes)?;
        for (layer, sums) in layers.iter().zip(&sums).rev() {
            let bar = |(place, &sum): (usize, &f64)| {
                let place = place as f64;
                let corners = [(place + 0.08, 0.0), (place + 0.92, sum)];
                Rectangle::new(corners, layer.colour.drawn().filled())
            };
            let bars = sums.iter().enumerate();
            let bars = bars.filter(|&(place, _)| layer.values[place] > 0.0);
            chart.draw_series(bars.map(bar))?;
        }
        Ok(())
    })
}

/// Draws each layer as a line through its points, at the places `xs`, up to the height `top`.
#[must_use]
pub fn lines(layers: &[Layer<'_>], xs: &[f64], top: f64, axes: Axes<'_>) -> String {
    let (first, last) = (xs.first().copied().unwrap_or(0.0), highest(xs));
    draw(|area| {
        let mut chart = chart_between(area, first..last.max(first + 1e-9), top, axes)?;
        for layer in layers {
            let points = xs.iter().copied().zip(layer.values.iter().copied());
            let colour = layer.colour.drawn();
            chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?;
            chart.draw_series(points.map(|point| Circle::new(point, 3, colour.filled())))?;
        }
        Ok(())
    })
}

fn draw(series: impl FnOnce(&Area<'_>) -> Drawn) -> String {
    let mut drawing = String::new();
    let area = SVGBackend::with_string(&mut drawing, (WIDTH, HEIGHT)).into_drawing_area();
    let drawn = series(&area).and_then(|()| Ok(area.present()?));
    drop(area);
    match drawn {
        Ok(()) => drawing,
        // A report that lacks one of its drawings is better than none.
        Err(error) => format!("<p>This could not be drawn: {}</p>", Escaped(&error)),
    }
}

fn chart<'a, 'b>(
    area: &'a Area<'b>,
    span: f64,
    top: f64,
    axes: Axes<'_>,
) -> Result<Chart<'a, 'b>, Box<dyn Error>>
where
    'b: 'a,
{
    chart_between(area, 0.0..span.max(1e-9), top, axes)
}

fn chart_between<'a, 'b>(
    area: &'a Area<'b>,
    across: std::ops::Range<f64>,
    top: f64,
    axes: Axes<'_>,
) -> Result<Chart<'a, 'b>, Box<dyn Error>>
where
    'b: 'a,
{
    let top = if top > 0.0 { top * 1.05 } else { 1.0 };
    let mut chart = ChartBuilder::on(area)
        .margin(6)
        .margin_right(24)
        .x_label_area_size(28)
        .y_label_area_size(84)
        .build_cartesian_2d(across, 0.0..top)?;
    let text = ("sans-serif", 17).into_font().color(&INK.drawn());
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(9)
        .y_labels(5)
        .max_light_lines(0)
        .bold_line_style(GRID.drawn())
        .axis_style(INK.drawn())
        .label_style(text)
        .x_label_formatter(&|x| (axes.x)(*x))
        .y_label_formatter(&|y| (axes.y)(*y))
        .draw()?;
    Ok(chart)
}

/// For each layer, its sum with those below it.
fn running_sums(layers: &[Layer<'_>]) -> Vec<Vec<f64>> {
    let mut sums: Vec<Vec<f64>> = Vec::new();
    for layer in layers {
        let next = match sums.last() {
            Some(below) => below
                .iter()
                .zip(&layer.values)
                .map(|(a, b)| a + b)
                .collect(),
            None => layer.values.clone(),
        };
        sums.push(next);
    }
    sums
}

/// A point in the middle of each column, and one at each end.
fn along(values: &[f64], span: f64) -> Vec<(f64, f64)> {
    let width = span / values.len().max(1) as f64;
    let middle = |(column, &value): (usize, &f64)| ((column as f64 + 0.5) * width, value);
    let mut points = Vec::with_capacity(values.len() + 2);
    points.extend(values.first().map(|&value| (0.0, value)));
    points.extend(values.iter().enumerate().map(middle));
    points.extend(values.last().map(|&value| (span, value)));
    points
}

fn highest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// Text in HTML.
struct Escaped<T>(T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = self.0.to_string();
        f.write_str(&maud::html! { (text) }.into_string())
    }
}

#[cfg(test)]
mod tests {
    use super::super::palette::{BLUE, RED};
    use super::*;

    fn layers(values: [&[f64]; 2]) -> [Layer<'_>; 2] {
        [("a", BLUE), ("b", RED)].map(|(name, colour)| Layer {
            name,
            colour,
            values: values[usize::from(name == "b")].to_vec(),
        })
    }

    const AXES: Axes<'static> = Axes {
        x: &|x| format!("{x} s"),
        y: &|y| format!("<{y}>"),
    };

    #[test]
    fn areas_are_stacked_and_labels_are_escaped() {
        let layers = layers([&[1.0, 2.0], &[3.0, 0.0]]);
        assert_eq!(running_sums(&layers), [[1.0, 2.0], [4.0, 2.0]]);
        let limit = Limit {
            at: 9.0,
            colour: RED,
        };
        let drawing = areas(&layers, 10.0, Some(limit), AXES);
        assert!(drawing.starts_with("<svg"), "{drawing}");
        assert_eq!(drawing.matches("<polygon").count(), 2, "{drawing}");
        assert!(drawing.contains("&lt;8&gt;"), "{drawing}");
        assert!(!drawing.contains("<8>"), "{drawing}");
    }

    #[test]
    fn plots_without_data_are_empty_and_contain_no_nan() {
        for drawing in [
            areas(&[], 0.0, None, AXES),
            areas(&layers([&[], &[]]), 0.0, None, AXES),
            bars(&[], AXES),
            lines(&[], &[], 0.0, AXES),
            lines(&layers([&[0.5], &[0.1]]), &[64.0], 1.0, AXES),
        ] {
            assert!(drawing.ends_with("</svg>\n"), "{drawing}");
            assert!(!drawing.contains("NaN"), "{drawing}");
        }
    }

    #[test]
    fn a_bar_is_drawn_only_for_a_nonzero_value() {
        let drawing = bars(&layers([&[1.0, 0.0, 4.0], &[0.0, 0.0, 1.0]]), AXES);
        assert_eq!(drawing.matches("fill=\"#1F6FD0\"").count(), 2, "{drawing}");
        assert_eq!(drawing.matches("fill=\"#CF2A2A\"").count(), 1, "{drawing}");
    }

    #[test]
    fn a_drawing_error_is_shown_escaped() {
        let said = draw(|_| Err("<full>".into()));
        assert_eq!(said, "<p>This could not be drawn: &lt;full&gt;</p>");
    }
}
