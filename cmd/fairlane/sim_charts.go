package main

import (
	"slices"
	"strings"

	"github.com/fairlane-dev/fairlane/sim/picture"
	"github.com/fairlane-dev/fairlane/sim/scenario"
)

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
