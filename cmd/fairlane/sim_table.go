package main

import (
	"fmt"
	"io"
	"math"
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

// charts are what a scenario's file asks for, or else its curves, a line each policy.
func charts(s *scenario.Scenario, r *scenario.Result) (all []picture.Chart) {
	for _, p := range s.Pictures {
		if len(p.Figures) > 0 {
			all = append(all, bars(s, r, p))
			continue
		}
		all = append(all, lines(s, r, p.Group, func(x *scenario.Series) bool { return x.Name == p.Series && x.Group == p.Group })...)
	}
	if len(s.Pictures) > 0 {
		return all
	}
	var groups []string
	for _, x := range r.Rows[0].Series {
		groups = append(groups, x.Group)
	}
	for _, group := range groups {
		all = append(all, lines(s, r, group, func(x *scenario.Series) bool { return x.Group == group })...)
	}
	return all
}

func bars(s *scenario.Scenario, r *scenario.Result, p scenario.Picture) picture.Chart {
	c := picture.Chart{Title: s.Name, X: "policy", Y: p.Axis, Log: p.Log}
	for _, row := range r.Rows {
		c.Names = append(c.Names, strings.TrimPrefix(row.Table+" "+row.Policy, " "))
	}
	for _, figure := range p.Figures {
		b := picture.Bars{Name: figure}
		for _, row := range r.Rows {
			b.Values = append(b.Values, row.Figures[figure])
		}
		c.Bars = append(c.Bars, b)
	}
	return c
}

// lines is a chart for each table, with the picked curve of every policy.
func lines(s *scenario.Scenario, r *scenario.Result, group string, pick func(*scenario.Series) bool) (all []picture.Chart) {
	for _, row := range r.Rows {
		for i := range row.Series {
			x := &row.Series[i]
			if !pick(x) {
				continue
			}
			title := strings.Join(nonEmpty(s.Name, row.Table, group), ", ")
			if len(all) == 0 || all[len(all)-1].Title != title {
				all = append(all, picture.Chart{Title: title, X: x.XAxis, Y: x.YAxis, Zero: true})
			}
			c := &all[len(all)-1]
			c.Lines = append(c.Lines, picture.Line{Name: row.Policy, X: x.X, Y: x.Y, Step: true})
		}
	}
	return all
}

func nonEmpty(words ...string) (list []string) {
	for _, w := range words {
		if w != "" {
			list = append(list, w)
		}
	}
	return list
}
