package config

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Print writes the effective configuration as a file that Load reads back, each value with
// its meaning and range. Secrets show the name of their variable.
func (c *Config) Print(w io.Writer) error {
	out := bufio.NewWriter(w)
	var open []string
	for _, f := range schema(c, nil) {
		value := f.show()
		if value == "" {
			continue
		}
		parts := strings.Split(f.path, ".")
		sections := parts[:len(parts)-1]
		same := common(open, sections)
		for i, s := range sections[same:] {
			fmt.Fprintf(out, "%s%s:\n", indent(same+i), s)
		}
		open = sections
		fmt.Fprintf(out, "%s%s: %s  # %s: %s\n", indent(len(sections)), parts[len(parts)-1], value, f.about, f.rule)
	}
	return out.Flush()
}

func indent(n int) string { return strings.Repeat("  ", n) }

// common is the length of the longest common prefix.
func common(a, b []string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// quoted is s as a YAML string; "" stays out of the print-out.
func quoted(s string) string {
	if s == "" {
		return ""
	}
	return strconv.Quote(s)
}
