package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fairlane-dev/fairlane/sim/picture"
	"github.com/fairlane-dev/fairlane/sim/scenario"
)

// writeResult prints a result as a table: a row a policy, the literature's figures in brackets.
func writeResult(w io.Writer, s *scenario.Scenario, r *scenario.Result) error {
	fmt.Fprintf(w, "%s: %s (seed %d)\n\n", s.Name, s.About, r.Seed)
	head := append([]string{"policy"}, s.Columns...)
	tables := false
	for _, row := range r.Rows {
		tables = tables || row.Table != ""
	}
	if tables {
		head = append([]string{"table"}, head...)
	}
	lines, said := [][]string{head}, false
	for _, row := range r.Rows {
		line := []string{row.Policy}
		if tables {
			line = []string{row.Table, row.Policy}
		}
		for _, c := range s.Columns {
			cell := "-"
			if v, ok := row.Figures[c]; ok {
				cell = shortNumber(v)
			}
			if lit := s.Literature[c][row.Policy]; lit != "" {
				cell += " (" + lit + ")"
				said = true
			}
			line = append(line, cell)
		}
		lines = append(lines, line)
	}
	if err := writeTable(w, lines); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, p := range s.Policies() {
		fmt.Fprintf(w, "%s: %s.\n", p.Name, p.About)
	}
	if said {
		fmt.Fprintln(w, "In brackets: what the literature found.")
	}
	if s.Note != "" {
		fmt.Fprintln(w, s.Note)
	}
	_, err := fmt.Fprintln(w)
	return err
}

// shortNumber shows four digits that count, and whole numbers whole.
func shortNumber(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	digits := 3 - int(math.Floor(math.Log10(math.Abs(v))))
	s := strconv.FormatFloat(v, 'f', min(max(digits, 0), 9), 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// writeTable aligns columns: text to the left, the first column and numbers alike.
func writeTable(w io.Writer, lines [][]string) error {
	var width []int
	for _, line := range lines {
		for i, cell := range line {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, line := range lines {
		var b strings.Builder
		for i, cell := range line {
			b.WriteString(cell)
			if i < len(line)-1 {
				b.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		if _, err := fmt.Fprintln(w, b.String()); err != nil {
			return err
		}
	}
	return nil
}

// charts are what a scenario's file asks for, or else its curves, a line each policy; and those for
// each table of it.
func charts(s *scenario.Scenario, r *scenario.Result) (all []picture.Chart) {
	var tables []string
	for _, row := range r.Rows {
		if !slices.Contains(tables, row.Table) {
			tables = append(tables, row.Table)
		}
	}
	wanted := s.Pictures
	if len(wanted) == 0 {
		for _, x := range r.Rows[0].Series {
			wanted = append(wanted, scenario.Picture{Series: x.Name, Group: x.Group})
		}
	}
	for _, p := range wanted {
		for _, table := range tables {
			c := picture.Chart{Title: strings.Join(nonEmpty(s.Name, table, p.Group), ", "), Log: p.Log}
			var rows []scenario.Row
			for _, row := range r.Rows {
				if row.Table == table {
					rows = append(rows, row)
				}
			}
			if len(p.Figures) > 0 {
				addBars(&c, rows, p)
			} else {
				addLines(&c, rows, p)
			}
			all = append(all, c)
		}
	}
	return all
}

func addBars(c *picture.Chart, rows []scenario.Row, p scenario.Picture) {
	c.X, c.Y = "policy", p.Axis
	for _, row := range rows {
		c.Names = append(c.Names, row.Policy)
	}
	for _, figure := range p.Figures {
		b := picture.Bars{Name: figure}
		for _, row := range rows {
			b.Values = append(b.Values, row.Figures[figure])
		}
		c.Bars = append(c.Bars, b)
	}
}

func addLines(c *picture.Chart, rows []scenario.Row, p scenario.Picture) {
	c.Zero = true
	for _, row := range rows {
		for _, x := range row.Series {
			if x.Name != p.Series || x.Group != p.Group {
				continue
			}
			c.X, c.Y = x.XAxis, x.YAxis
			l := picture.Line{Name: row.Policy, Step: true}
			for i, at := range x.X {
				if at >= p.Span.From.Seconds() && (p.Span.To == 0 || at <= p.Span.To.Seconds()) {
					l.X, l.Y = append(l.X, at), append(l.Y, x.Y[i])
				}
			}
			c.Lines = append(c.Lines, l)
		}
	}
}

func nonEmpty(words ...string) (list []string) {
	for _, w := range words {
		if w != "" {
			list = append(list, w)
		}
	}
	return list
}
