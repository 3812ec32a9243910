package picture

import (
	"errors"
	"image/color"
	"io"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	width  = 7.5 * vg.Inch
	height = 3.4 * vg.Inch // of one chart
	gap    = 12            // points between charts
	most   = 8             // series in a chart: more could not be told apart
)

// strokes tells lines apart by shade, width and dashes.
var strokes = [most]struct {
	shade  uint8
	width  vg.Length
	dashes []vg.Length
}{
	{0x00, 1.8, nil},
	{0x00, 1.2, []vg.Length{6, 3}},
	{0x8c, 2.4, nil},
	{0x00, 1.4, []vg.Length{1.5, 2.5}},
	{0x70, 1.4, []vg.Length{9, 3, 2, 3}},
	{0xb4, 2.4, []vg.Length{7, 2}},
	{0x40, 0.8, nil},
	{0x50, 2.0, []vg.Length{2, 5}},
}

// shades fills bars, from dark to light and back: neighbours differ.
var shades = [most]uint8{0x30, 0xc8, 0x78, 0xf0, 0x58, 0xdc, 0x98, 0x10}

type canvas interface {
	vg.CanvasSizer
	io.WriterTo
}

func svgCanvas(w, h vg.Length) canvas { return vgsvg.New(w, h) }

func pngCanvas(w, h vg.Length) canvas {
	return vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(144))}
}

func render(w io.Writer, on func(w, h vg.Length) canvas, charts []Chart) error {
	if len(charts) == 0 {
		return errors.New("picture: nothing to draw")
	}
	column := make([][]*plot.Plot, len(charts))
	for i := range charts {
		p, err := charts[i].plot()
		if err != nil {
			return err
		}
		column[i] = []*plot.Plot{p}
	}
	c := on(width, height*vg.Length(len(charts)))
	tiles := draw.Tiles{
		Rows: len(charts), Cols: 1, PadX: gap, PadY: gap, PadTop: gap / 2, PadBottom: gap / 2, PadLeft: gap, PadRight: gap,
	}
	area := draw.New(c)
	area.SetColor(color.White)
	area.Fill(area.Path())
	for i, row := range plot.Align(column, tiles, area) {
		column[i][0].Draw(row[0])
	}
	_, err := c.WriteTo(w)
	return err
}

func (c *Chart) plot() (*plot.Plot, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if len(c.Lines) > most || len(c.Bars) > most {
		return nil, errors.New("picture: Lines, Bars: must be at most 8, more cannot be told apart")
	}
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.X, c.Y
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks{}, ticks{}
	p.Title.Padding, p.Legend.Top, p.Legend.Padding = 6, true, 2
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil
	grid.Horizontal.Color = color.Gray{0xd8}
	p.Add(grid)
	add := c.lines
	if len(c.Bars) > 0 {
		add = c.bars
	}
	if err := add(p); err != nil {
		return nil, err
	}
	c.scale(p)
	return p, nil
}

// ticks are gonum's, without decimals that say nothing.
type ticks struct{}

func (ticks) Ticks(low, high float64) []plot.Tick {
	all := plot.DefaultTicks{}.Ticks(low, high)
	for i := range all {
		if l := &all[i].Label; strings.Contains(*l, ".") && !strings.ContainsAny(*l, "eE") {
			*l = strings.TrimRight(strings.TrimRight(*l, "0"), ".")
		}
	}
	return all
}

// headroom is the part of Y that a row of the legend takes.
const headroom = 0.085

// scale sets the range of Y, with room above for the legend.
func (c *Chart) scale(p *plot.Plot) {
	rows := 0.5
	for _, l := range c.Lines {
		if l.Name != "" {
			rows++
		}
	}
	for _, b := range c.Bars {
		if b.Name != "" {
			rows++
		}
	}
	room := headroom * rows / (1 - headroom*rows)
	if c.Log {
		p.Y.Scale, p.Y.Tick.Marker = logScale{}, plot.LogTicks{Prec: -1}
		p.Y.Min = math.Pow(10, math.Floor(math.Log10(c.least()*0.9)))
		p.Y.Max = max(p.Y.Max, p.Y.Min*10)
		p.Y.Max *= math.Pow(p.Y.Max/p.Y.Min, room)
		return
	}
	if c.Zero || len(c.Bars) > 0 {
		p.Y.Min = min(p.Y.Min, 0)
	}
	if p.Y.Max <= p.Y.Min {
		p.Y.Max = p.Y.Min + 1
	}
	p.Y.Max += (p.Y.Max - p.Y.Min) * room
}

// logScale shows what is below the axis at its foot: a bar begins at 0.
type logScale struct{}

func (logScale) Normalize(low, high, x float64) float64 {
	return math.Log(max(x, low)/low) / math.Log(high/low)
}

// least is the smallest value above 0 that is shown.
func (c *Chart) least() float64 {
	least := math.Inf(1)
	see := func(values []float64) {
		for _, v := range values {
			if v > 0 {
				least = min(least, v)
			}
		}
	}
	for _, l := range c.Lines {
		see(l.Y)
	}
	for _, b := range c.Bars {
		see(b.Values)
	}
	if math.IsInf(least, 1) {
		return 1
	}
	return least
}

func (c *Chart) lines(p *plot.Plot) error {
	for i, l := range c.Lines {
		if len(l.X) == 0 {
			continue
		}
		points := make(plotter.XYs, len(l.X))
		for j, x := range l.X {
			points[j] = plotter.XY{X: x, Y: l.Y[j]}
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		if l.Step {
			line.StepStyle = plotter.PostStep
		}
		line.Color, line.Width, line.Dashes = color.Gray{strokes[i].shade}, strokes[i].width, strokes[i].dashes
		p.Add(line)
		if l.Name != "" {
			p.Legend.Add(l.Name, line)
		}
	}
	return nil
}

func (c *Chart) bars(p *plot.Plot) error {
	groups, n := len(c.Names), len(c.Bars)
	wide := width * 0.6 / vg.Length(groups*n)
	for i, b := range c.Bars {
		bar, err := plotter.NewBarChart(plotter.Values(b.Values), wide)
		if err != nil {
			return err
		}
		bar.Offset = wide * (vg.Length(i) - vg.Length(n-1)/2)
		bar.Color, bar.LineStyle.Width = color.Gray{shades[i]}, 0.6
		p.Add(bar)
		if b.Name != "" {
			p.Legend.Add(b.Name, bar)
		}
	}
	p.NominalX(c.Names...)
	p.X.Min, p.X.Max = -0.6, float64(groups)-0.4
	return nil
}
