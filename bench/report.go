package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// report is what --json prints.
type report struct {
	Machine machine  `json:"machine"`
	Quick   bool     `json:"quick"`
	Rows    []result `json:"rows"`
}

func (r report) json(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// table writes every figure as a line of a Markdown table.
func (r report) table(w io.Writer) error {
	r.Machine.write(w)
	fmt.Fprint(w, "\n| row | figure | bar | printed | rounds: number, least to most |\n|---|---|---|---|---|\n")
	for _, row := range r.Rows {
		for _, f := range row.Figures {
			bar := ""
			if f.Bar != nil {
				bar = f.Bar.String()
			}
			value := strings.TrimSpace(short(f.Rounds.median()) + " " + f.Unit)
			if v := f.verdict(); v != "" {
				value += ", " + v
			}
			if _, err := fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", row.Name, f.What, bar, value, f.spread()); err != nil {
				return err
			}
		}
	}
	return nil
}

// result is one row that ran.
type result struct {
	Name    string   `json:"name"`
	About   string   `json:"about"`
	Seconds float64  `json:"seconds"` // the row took
	Figures []figure `json:"figures"`
}

// figure is one measured number: the median of its rounds.
type figure struct {
	What   string
	Unit   string
	Rounds series
	Bar    *bar
	Note   string
}

// bar is what a figure is held against: within [Least, Most], either of them open.
type bar struct {
	Least *float64 `json:"least,omitempty"`
	Most  *float64 `json:"most,omitempty"`
}

func atMost(x float64) *bar  { return &bar{Most: &x} }
func atLeast(x float64) *bar { return &bar{Least: &x} }
func within(least, most float64) *bar {
	return &bar{&least, &most}
}

func (b *bar) meets(x float64) bool {
	return (b.Least == nil || x >= *b.Least) && (b.Most == nil || x <= *b.Most)
}

func (b *bar) String() string {
	switch {
	case b.Least == nil:
		return "at most " + short(*b.Most)
	case b.Most == nil:
		return "at least " + short(*b.Least)
	}
	return short(*b.Least) + " to " + short(*b.Most)
}

// one is a figure measured once.
func one(what string, value float64, unit string, bar *bar) figure {
	return figure{What: what, Unit: unit, Rounds: series{value}, Bar: bar}
}

// many is a figure measured once a round.
func many(what string, rounds series, unit string, bar *bar) figure {
	return figure{What: what, Unit: unit, Rounds: rounds, Bar: bar}
}

func (f figure) note(format string, args ...any) figure {
	f.Note = fmt.Sprintf(format, args...)
	return f
}

func (f figure) verdict() string {
	switch {
	case f.Bar == nil:
		return ""
	case f.Bar.meets(f.Rounds.median()):
		return "meets"
	}
	return "misses"
}

// spread is the least and the most of the rounds; "" of a single one.
func (f figure) spread() string {
	if len(f.Rounds) < 2 {
		return ""
	}
	return fmt.Sprintf("%d, %s to %s", len(f.Rounds), short(f.Rounds.low()), short(f.Rounds.high()))
}

// MarshalJSON adds the median and the verdict.
func (f figure) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		What    string  `json:"what"`
		Value   float64 `json:"value"`
		Unit    string  `json:"unit,omitempty"`
		Rounds  series  `json:"rounds"`
		Bar     *bar    `json:"bar,omitempty"`
		Verdict string  `json:"verdict,omitempty"`
		Note    string  `json:"note,omitempty"`
	}{f.What, f.Rounds.median(), f.Unit, f.Rounds, f.Bar, f.verdict(), f.Note})
}

func (r result) write(w io.Writer) {
	fmt.Fprintf(w, "\n%s: %s\n", r.Name, r.About)
	for _, f := range r.Figures {
		line := fmt.Sprintf("  %-52s %10s %-9s", f.What, short(f.Rounds.median()), f.Unit)
		if f.Bar != nil {
			line += fmt.Sprintf("  bar %s: %s", f.Bar, f.verdict())
		}
		if s := f.spread(); s != "" {
			line += "  (" + s + ")"
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
		if f.Note != "" {
			fmt.Fprintf(w, "      %s\n", f.Note)
		}
	}
}

// short prints three significant digits, and all of a whole number's.
func short(x float64) string {
	if x >= 100 || x <= -100 || x == float64(int64(x)) {
		return grouped(strconv.FormatFloat(x, 'f', 0, 64))
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// grouped puts a comma before every three digits.
func grouped(digits string) string {
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
