package report

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	chartWidth  = 18 * vg.Centimeter
	chartHeight = 6.5 * vg.Centimeter
)

// colours can be told apart by people who do not see all of them.
var colours = []color.RGBA{
	{R: 0, G: 114, B: 178, A: 255}, {R: 213, G: 94, B: 0, A: 255}, {R: 0, G: 158, B: 115, A: 255},
	{R: 204, G: 121, B: 167, A: 255}, {R: 86, G: 180, B: 233, A: 255}, {R: 230, G: 159, B: 0, A: 255},
}

// overTime draws the series of one chart.
func overTime(title, unit string, series []*Series, marks []Mark) (template.HTML, error) {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text, p.Y.Label.Text = "s", unit
	p.Y.Min = 0
	p.Add(plotter.NewGrid())
	for i, s := range series {
		points := make(plotter.XYs, len(s.Points))
		for j, at := range s.Points {
			points[j] = plotter.XY{X: at.At, Y: scaled(at.Value, unit)}
		}
		if err := addLine(p, points, s.Name, i); err != nil {
			return "", err
		}
	}
	p.Y.Min, p.Y.Max = 0, max(p.Y.Max*1.3, 1e-3) // room for names
	p.Y.Label.Text = scaledUnit(unit)
	for _, m := range marks {
		if m.At < p.X.Min || m.At > p.X.Max {
			continue
		}
		line, err := plotter.NewLine(plotter.XYs{{X: m.At, Y: 0}, {X: m.At, Y: p.Y.Max}})
		if err != nil {
			return "", fmt.Errorf("draw %s: %w", title, err)
		}
		line.Color = color.Gray{Y: 120}
		line.Dashes = []vg.Length{vg.Points(2), vg.Points(2)}
		labels, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: m.At, Y: p.Y.Max * 0.94}}, Labels: []string{" " + m.What}})
		if err != nil {
			return "", fmt.Errorf("draw %s: %w", title, err)
		}
		p.Add(line, labels)
	}
	return svg(p)
}

// cumulative draws which share of durations was shorter, over a logarithmic axis.
func cumulative(d Distribution) (template.HTML, error) {
	p := plot.New()
	p.Title.Text = words(d.Name)
	p.X.Label.Text, p.Y.Label.Text = "ms", "share, %"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Add(plotter.NewGrid())
	const floor = 0.1 // ms; what was shorter, is drawn here
	step := max(1, len(d.Values)/500)
	var points plotter.XYs
	for i := 0; i < len(d.Values); i += step {
		points = append(points, plotter.XY{X: max(floor, d.Values[i]*1000), Y: 100 * float64(i+1) / float64(len(d.Values))})
	}
	points = append(points, plotter.XY{X: max(floor, d.Values[len(d.Values)-1]*1000), Y: 100})
	if err := addLine(p, points, "", 0); err != nil {
		return "", err
	}
	p.X.Min = math.Pow(10, math.Floor(math.Log10(points[0].X)))
	p.X.Max = math.Pow(10, math.Ceil(math.Log10(points[len(points)-1].X*1.01)))
	p.Y.Min, p.Y.Max = 0, 102
	return svg(p)
}

func addLine(p *plot.Plot, points plotter.XYs, name string, i int) error {
	line, err := plotter.NewLine(points)
	if err != nil {
		return fmt.Errorf("draw %s: %w", name, err)
	}
	line.Color = colours[i%len(colours)]
	line.Width = vg.Points(1.5)
	p.Add(line)
	if name != "" {
		p.Legend.Add(name, line)
	}
	p.Legend.Top, p.Legend.YOffs = true, -vg.Points(14) // below the marks
	return nil
}

// scaled makes axes that people can read.
func scaled(value float64, unit string) float64 {
	if unit == "bytes" {
		return value / 1e6
	}
	return value
}

func scaledUnit(unit string) string {
	if unit == "bytes" {
		return "MB"
	}
	return unit
}

// svg draws the plot as an element that can stand in a page.
func svg(p *plot.Plot) (template.HTML, error) {
	canvas := vgsvg.New(chartWidth, chartHeight)
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", fmt.Errorf("draw %s: %w", p.Title.Text, err)
	}
	text := b.Bytes()
	if i := bytes.Index(text, []byte("<svg")); i > 0 {
		text = text[i:]
	}
	return template.HTML(text), nil
}
