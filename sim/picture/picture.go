// Package picture draws charts as SVG and PNG: lines, steps and bars, legible without colour.
//
// A chart is plain data. Series are told apart by shade and dashes, and by a legend; every axis
// carries its title, which should name the unit. Equal charts give equal files.
package picture

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// Chart is one picture with two axes. It shows Lines, or Bars, not both.
type Chart struct {
	Title string
	X, Y  string // titles of the axes, with their units
	Log   bool   // Y is logarithmic: values of 0 and below stand at its foot
	Zero  bool   // Y begins at 0, whatever the values
	Lines []Line
	Bars  []Bars
	Names []string // under the groups of bars, one for each value of Bars
}

// Line is a series of points in order of X. Step draws each value until the next one's X.
type Line struct {
	Name string // in the legend; "" leaves it out
	X, Y []float64
	Step bool
}

// Bars is one bar for each of Chart.Names. Several stand side by side.
type Bars struct {
	Name   string
	Values []float64
}

// Formats are the endings of file names that Write knows.
var Formats = []string{".svg", ".png"}

// CheckName reports an error if Write would not know what to write into the file.
func CheckName(path string) error {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".svg", ".png":
		return nil
	}
	return fmt.Errorf("picture: %q must end in %s", path, strings.Join(Formats, " or "))
}

// Write draws the charts, one below the other, into a file: SVG or PNG by its ending. Nothing is
// written when a chart is wrong.
func Write(path string, charts ...Chart) error {
	if err := CheckName(path); err != nil {
		return err
	}
	var b bytes.Buffer
	draw := SVG
	if strings.EqualFold(filepath.Ext(path), ".png") {
		draw = PNG
	}
	if err := draw(&b, charts...); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// SVG and PNG draw the charts, one below the other.
func SVG(w io.Writer, charts ...Chart) error { return render(w, svgCanvas, charts) }
func PNG(w io.Writer, charts ...Chart) error { return render(w, pngCanvas, charts) }

// check returns what is wrong with a chart, by field.
func (c *Chart) check() error {
	if c.X == "" || c.Y == "" {
		return errors.New("picture: X, Y: must name what the axes show, with the unit")
	}
	if (len(c.Lines) == 0) == (len(c.Bars) == 0) {
		return errors.New("picture: Lines, Bars: exactly one of them must be given")
	}
	for i, l := range c.Lines {
		if len(l.X) != len(l.Y) {
			return fmt.Errorf("picture: Lines[%d]: X and Y must be equally long, are %d and %d", i, len(l.X), len(l.Y))
		}
		if !finite(l.X) || !finite(l.Y) {
			return fmt.Errorf("picture: Lines[%d]: must be finite", i)
		}
	}
	for i, b := range c.Bars {
		if len(b.Values) != len(c.Names) {
			return fmt.Errorf("picture: Bars[%d]: must have a value for each of the %d names, has %d", i, len(c.Names), len(b.Values))
		}
		if !finite(b.Values) {
			return fmt.Errorf("picture: Bars[%d]: must be finite", i)
		}
	}
	return nil
}

func finite(x []float64) bool {
	for _, v := range x {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return false
		}
	}
	return true
}
