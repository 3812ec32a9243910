package scenario

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// WriteText prints a result as a table: a row a policy, the literature's figures in brackets.
func (s *Scenario) WriteText(w io.Writer, r *Result) error {
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
				cell = ShortNumber(v)
			}
			if lit := s.Literature[c][row.Policy]; lit != "" {
				cell += " (" + lit + ")"
				said = true
			}
			line = append(line, cell)
		}
		lines = append(lines, line)
	}
	if err := WriteTable(w, lines); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, p := range s.policies {
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

// ShortNumber shows four digits that count, and whole numbers whole.
func ShortNumber(v float64) string {
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

// WriteTable prints lines with their columns aligned.
func WriteTable(w io.Writer, lines [][]string) error {
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
