package demo

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// The picture: the healthy tenant's p99 in the three phases, as bars on a logarithmic axis.
const (
	pictureWidth  = 720
	pictureHeight = 210
	pictureLeft   = 230 // of the axis
	pictureRight  = 640
	pictureTop    = 46 // of the first bar
	barHeight     = 26
	barStep       = 40
)

type bar struct {
	label string
	ms    float64
	shade string
}

// WritePicture writes r's three p99s as an SVG, legible in grey.
func WritePicture(w io.Writer, r Report) error {
	if r.SteadyP99Alone == nil || r.SteadyP99With == nil || r.SteadyP99Unprotected == nil {
		return errors.New("demo: no picture: a phase delivered nothing to the steady tenant")
	}
	bars := []bar{
		{"alone", *r.SteadyP99Alone, "#8a8a8a"},
		{"with 8 bad neighbours", *r.SteadyP99With, "#4d4d4d"},
		{"the same, protections off", *r.SteadyP99Unprotected, "#c8c8c8"},
	}
	low, high := decades(bars)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="14" role="img">`+"\n",
		pictureWidth, pictureHeight)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", pictureWidth, pictureHeight)
	fmt.Fprintf(&b, `<text x="16" y="26" font-weight="bold">What the healthy tenant waits: p99 from post to its endpoint's answer</text>`+"\n")
	drawAxis(&b, low, high)
	for i, x := range bars {
		drawBar(&b, pictureTop+i*barStep, x, low, high)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// decades returns the powers of ten between which all bars lie, in ms.
func decades(bars []bar) (low, high float64) {
	low, high = math.Inf(1), 0
	for _, x := range bars {
		low, high = min(low, x.ms), max(high, x.ms)
	}
	low = math.Pow(10, math.Floor(math.Log10(max(low, 0.1))))
	return low, max(math.Pow(10, math.Ceil(math.Log10(high))), 10*low)
}

func place(ms, low, high float64) float64 {
	share := math.Log10(max(ms, low)/low) / math.Log10(high/low)
	return pictureLeft + share*(pictureRight-pictureLeft)
}

func drawAxis(b *strings.Builder, low, high float64) {
	bottom := pictureTop + 3*barStep - (barStep - barHeight)
	for ms := low; ms <= high*1.001; ms *= 10 {
		x := place(ms, low, high)
		fmt.Fprintf(b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#dddddd"/>`+"\n", x, pictureTop-6, x, bottom+6)
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle" font-size="12" fill="#333333">%s</text>`+"\n", x, bottom+22, duration(ms))
	}
}

func drawBar(b *strings.Builder, y int, x bar, low, high float64) {
	end := place(x.ms, low, high)
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", pictureLeft-10, y+18, x.label)
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s" stroke="#333333"/>`+"\n", pictureLeft, y, max(end-pictureLeft, 1), barHeight, x.shade)
	fmt.Fprintf(b, `<text x="%.1f" y="%d">%s</text>`+"\n", end+8, y+18, duration(x.ms))
}

// duration is a time in ms with its unit, in three digits.
func duration(ms float64) string {
	if ms >= 1000 {
		return fmt.Sprintf("%.3g s", ms/1000)
	}
	return fmt.Sprintf("%.3g ms", ms)
}
