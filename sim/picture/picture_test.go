package picture

import (
	"bytes"
	"encoding/xml"
	"image/color"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func lines() Chart {
	return Chart{
		Title: "slots held", X: "time, s", Y: "slots", Zero: true,
		Lines: []Line{
			{Name: "shared", X: []float64{0, 1, 2}, Y: []float64{0, 800, 1000}},
			{Name: "cap", X: []float64{0, 1, 2}, Y: []float64{0, 16, 16}, Step: true},
		},
	}
}

func bars(log bool) Chart {
	return Chart{
		X: "policy", Y: "p99, ms", Log: log, Names: []string{"none", "fair"},
		Bars: []Bars{{"small", []float64{6000, 60}}, {"large", []float64{7000, 0}}},
	}
}

func drawn(t *testing.T, to func(io.Writer, ...Chart) error, charts ...Chart) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := to(&b, charts...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// words are the texts of a picture, which must be valid XML.
func words(t *testing.T, svg []byte) string {
	t.Helper()
	var text []string
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		tok, err := d.Token()
		if err == io.EOF {
			return strings.Join(text, "|")
		}
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := tok.(xml.CharData); ok {
			text = append(text, string(c))
		}
	}
}

func TestSVGNamesAxesSeriesAndGroups(t *testing.T) {
	text := words(t, drawn(t, SVG, lines(), bars(true)))
	for _, want := range []string{"slots held", "time, s", "shared", "cap", "policy", "p99, ms", "none", "fair", "small", "large"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %q", want, text)
		}
	}
}

func TestEqualChartsGiveEqualFiles(t *testing.T) {
	for _, to := range []func(io.Writer, ...Chart) error{SVG, PNG} {
		if !bytes.Equal(drawn(t, to, lines(), bars(false)), drawn(t, to, lines(), bars(false))) {
			t.Error("two pictures of one chart differ")
		}
	}
}

// A picture that is printed without colour loses nothing: it has none.
func TestPNGIsGrey(t *testing.T) {
	img, err := png.Decode(bytes.NewReader(drawn(t, PNG, lines(), bars(false))))
	if err != nil {
		t.Fatal(err)
	}
	dark := 0
	for x := range img.Bounds().Dx() {
		for y := range img.Bounds().Dy() {
			c := color.RGBAModel.Convert(img.At(x, y)).(color.RGBA)
			if c.R != c.G || c.G != c.B {
				t.Fatalf("%v at %d, %d is not grey", c, x, y)
			}
			if c.R < 0x40 {
				dark++
			}
		}
	}
	if dark < 500 {
		t.Errorf("only %d dark points: nothing was drawn", dark)
	}
}

func TestWriteGoesByTheEnding(t *testing.T) {
	dir := t.TempDir()
	for name, magic := range map[string]string{"a.svg": "<?xml", "b.PNG": "\x89PNG"} {
		path := filepath.Join(dir, name)
		if err := Write(path, lines()); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || !bytes.HasPrefix(b, []byte(magic)) {
			t.Errorf("%s: %v, begins with %q", name, err, b[:min(8, len(b))])
		}
	}
	path := filepath.Join(dir, "c.gif")
	if err := Write(path, lines()); err == nil || !strings.Contains(err.Error(), ".svg or .png") {
		t.Errorf("c.gif: %v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a refused file was made")
	}
}

func TestAWrongChartIsRefusedByField(t *testing.T) {
	change := func(c Chart, edit func(*Chart)) Chart { edit(&c); return c }
	for name, c := range map[string]Chart{
		"X, Y":     change(lines(), func(c *Chart) { c.Y = "" }),
		"Lines[0]": {X: "x", Y: "y", Lines: []Line{{X: []float64{1}}}},
		"finite":   {X: "x", Y: "y", Lines: []Line{{X: []float64{1}, Y: []float64{math.NaN()}}}},
		"Bars[1]":  change(bars(false), func(c *Chart) { c.Bars = append(c.Bars[:1:1], Bars{Values: []float64{1}}) }),
		"exactly":  {X: "x", Y: "y"},
		"at most":  {X: "x", Y: "y", Lines: make([]Line, 9)},
	} {
		if err := SVG(io.Discard, c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := SVG(io.Discard); err == nil {
		t.Error("no chart is accepted")
	}
}
