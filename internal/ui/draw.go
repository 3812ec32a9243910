package ui

import (
	"fmt"
	"strings"
	"time"

	"github.com/fairlane-dev/fairlane/plan"
)

// picture is a diagram in SVG: lines in a box of pictureWidth by pictureHeight, whose colours are the style
// sheet's.
type picture struct {
	About string // for those who do not see it
	Unit  string // of what is upright
	Lines []line
	Bars  []bar
	Ticks []tick
	Marks []tick // dashed, upright
	Keys  []key
}

// key says what is drawn how.
type key struct{ Class, Text string }

type line struct{ Class, Points string }

type bar struct {
	Class         string
	X, Y, W, H    string
	Label, LabelX string
	LabelY        string
}

type tick struct {
	X, Y, Text string
	Across     bool // a line through the picture
}

const (
	pictureWidth, pictureHeight = 640, 220
	left, right, top, bottom    = 64, 12, 30, 34
)

// frame maps figures into a picture.
type frame struct{ maxX, maxY float64 }

func (f frame) x(v float64) float64 { return left + v/f.maxX*(pictureWidth-left-right) }
func (f frame) y(v float64) float64 {
	return pictureHeight - bottom - v/f.maxY*(pictureHeight-top-bottom)
}

func at(v float64) string { return fmt.Sprintf("%.1f", v) }

func (f frame) line(class string, points [][2]float64) line {
	var b strings.Builder
	for _, p := range points {
		fmt.Fprintf(&b, "%.1f,%.1f ", f.x(p[0]), f.y(p[1]))
	}
	return line{class, strings.TrimSpace(b.String())}
}

// upTo is a tick of the height v.
func (f frame) upTo(v float64) tick {
	return tick{X: at(left - 6), Y: at(f.y(v)), Text: decimal(v), Across: true}
}

func (f frame) below(v float64, text string) tick {
	return tick{X: at(f.x(v)), Y: at(pictureHeight - bottom + 18), Text: text}
}

// over are the ticks of a time with the burst in it: of those that would touch the burst's there is none.
func (f frame) over(whole, burst float64) []tick {
	ticks := []tick{f.below(burst, "burst")}
	if burst > whole/8 {
		ticks = append(ticks, f.below(0, "0 s"))
	}
	if burst < whole*7/8 {
		ticks = append(ticks, f.below(whole*0.96, brief(time.Duration(whole*1e9))))
	}
	return ticks
}

// steps is how finely the level is drawn.
const steps = 160

// drawLevel draws a bucket's tokens twice: empty, refilled while idle, then the burst; and full, under the
// steady offer.
func drawLevel(in plan.BucketInput, r plan.BucketResult) *picture {
	idle := in.Idle.Seconds()
	whole := idle + min(in.For.Seconds(), max(idle, 4*in.Capacity/max(in.Rate, 1e-9), 1))
	f := frame{max(whole, 1e-9), max(in.Capacity, 1)}
	levels := func(from, level, offered float64) (points [][2]float64) {
		points = append(points, [2]float64{from, level})
		for i := 1; i <= steps; i++ {
			level = min(max(level+(in.Rate-offered)*(whole-from)/steps, 0), in.Capacity)
			points = append(points, [2]float64{from + (whole-from)*float64(i)/steps, level})
		}
		return points
	}
	burst := append([][2]float64{{0, 0}, {idle, r.TokensBeforeBurst}}, levels(idle, max(0, r.TokensBeforeBurst-r.AdmittedInBurst), 0)...)
	if fill := in.Capacity / max(in.Rate, 1e-9); fill < idle {
		burst = append([][2]float64{{0, 0}, {fill, in.Capacity}}, burst[1:]...)
	}
	return &picture{
		About: "Tokens in the bucket over time: from empty, refilled while idle, taken by the burst, refilled again; and from full, under the steady offer",
		Lines: []line{f.line("level", burst), f.line("steady", levels(0, in.Capacity, in.Offered))},
		Unit:  "tokens",
		Ticks: append(f.over(whole, idle), f.upTo(in.Capacity), f.upTo(in.Capacity/2), f.upTo(0)),
		Marks: []tick{{X: at(f.x(idle)), Y: at(top)}},
		Keys:  []key{{"level", "empty, idle, then the burst"}, {"steady", "full, then the steady offer"}},
	}
}

// drawEdge draws what each rule lets through before and after the boundary.
func drawEdge(r plan.WindowResult) *picture {
	most := float64(r.Limit)
	for _, row := range r.Rules {
		most = max(most, float64(row.Through))
	}
	f := frame{float64(len(r.Rules)), most * 1.1}
	p := &picture{About: fmt.Sprintf("Requests let through within %s around the boundary, by rule, before it and after it; the limit is %d", brief(time.Duration(r.GapMS*1e6)), r.Limit)}
	p.Unit, p.Keys = "requests let through", []key{{"before", "before the boundary"}, {"after", "after it"}}
	p.Ticks = append(p.Ticks, f.upTo(float64(r.Limit)), f.upTo(0))
	if most > float64(r.Limit) {
		p.Ticks = append(p.Ticks, f.upTo(most))
	}
	for i, row := range r.Rules {
		p.stack(f, i, row.Rule, float64(row.Before), float64(row.Through), number(row.Through))
	}
	return p
}

// stack adds the i-th of the bars: a lower and an upper part, with a label above.
func (p *picture) stack(f frame, i int, name string, lower, all float64, label string) {
	x := f.x(float64(i) + 0.2)
	w := f.x(float64(i)+0.8) - x
	p.Bars = append(p.Bars,
		bar{Class: "before", X: at(x), Y: at(f.y(lower)), W: at(w), H: at(f.y(0) - f.y(lower))},
		bar{Class: "after", X: at(x), Y: at(f.y(all)), W: at(w), H: at(f.y(lower) - f.y(all)), Label: label, LabelX: at(x + w/2), LabelY: at(f.y(all) - 4)})
	p.Ticks = append(p.Ticks, f.below(float64(i)+0.5, name))
}

// drawShares draws what each tenant gets, and what it wants beyond that.
func drawShares(r plan.SharesResult) *picture {
	most := 1e-9
	for _, t := range r.Tenants {
		most = max(most, t.Want)
	}
	f := frame{float64(len(r.Tenants)), most * 1.1}
	p := &picture{About: "What each tenant gets of the capacity, and what it wants beyond that", Unit: "share, in the unit of the capacity", Keys: []key{{"before", "gets"}, {"after", "wants beyond that"}}}
	p.Ticks = append(p.Ticks, f.upTo(most), f.upTo(0))
	for i, t := range r.Tenants {
		p.stack(f, i, t.Name, t.Share, t.Want, decimal(t.Share)+" of "+decimal(t.Want))
	}
	return p
}
