package demo

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlane-dev/fairlane/internal/receiver"
)

// screen shows how the phases go: on a terminal a table that is redrawn in place,
// elsewhere a line at the begin and the end of each phase. One goroutine at a time.
type screen struct {
	out   io.Writer
	live  bool
	title string
	total time.Duration
	drawn int // lines of the table on the terminal
}

// Terminal control: lines longer than the window are cut, not wrapped, while the table
// is drawn, so that moving up counts right.
const (
	wrapOff   = "\x1b[?7l"
	wrapOn    = "\x1b[?7h"
	clearLine = "\x1b[2K"
)

func (s *screen) begin(n, of int, p phase, total time.Duration) {
	s.title, s.total, s.drawn = fmt.Sprintf("%d/%d %s", n, of, p.name), total, 0
	if s.live {
		fmt.Fprint(s.out, wrapOff)
		return
	}
	fmt.Fprintf(s.out, "%s: %s with %s\n", s.title, total, offered(p))
}

// offered says what a phase is.
func offered(p phase) string {
	rate := 0
	for _, t := range p.tenants {
		rate += t.rate
	}
	return fmt.Sprintf("%d triggers/s for %s", rate, plural(len(p.tenants), "tenant"))
}

// update redraws the table.
func (s *screen) update(r *run, since time.Duration) {
	if !s.live {
		return
	}
	var b bytes.Buffer
	if s.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.drawn)
	}
	lines := []string{
		fmt.Sprintf("%-60s %5.1f of %.0f s", s.title, since.Seconds(), s.total.Seconds()),
		fmt.Sprintf("  %-11s %-24s %8s %9s %8s %9s %9s", "tenant", "endpoint", "posted", "delivered", "attempts", "in flight", "p99"),
	}
	accepted := r.poster.accepted()
	for i, t := range r.phase.tenants {
		tally, all := r.receivers[i].Tally(), r.receivers[i].Latencies()
		p99 := "-"
		if len(all) > 0 {
			p99 = span(receiver.Quantile(all, 0.99))
		}
		lines = append(lines, fmt.Sprintf("  %-11s %-24s %8d %9d %8d %9d %9s",
			t.name, t.about, accepted[i], tally.Delivered, tally.Attempts, tally.InFlight, p99))
	}
	for _, line := range lines {
		b.WriteString(clearLine + line + "\n")
	}
	s.drawn = len(lines)
	_, _ = s.out.Write(b.Bytes())
}

// end closes the phase; m is nil when it failed.
func (s *screen) end(m *measured) {
	if s.live {
		fmt.Fprint(s.out, wrapOn)
	}
	if m == nil {
		return
	}
	fmt.Fprintf(s.out, "%s: %s's p99 is %s\n", s.title, steady, figure(m.p99(steady)))
	if m.posting.late > 0 {
		fmt.Fprintf(s.out, "  note: %s started late, by up to %s: this machine was too busy to post on time\n",
			plural(m.posting.late, "post"), span(m.posting.worst))
	}
	if s.live {
		fmt.Fprintln(s.out)
	}
}

// writeText writes what a person reads at the end.
func writeText(w io.Writer, r Report) error {
	var b bytes.Buffer
	b.WriteString("\nThe account with neighbours, protections on. Delivered, attempts and what follows them are\n" +
		"counted by the endpoints, the rest by the service. What is parked comes back by itself, what is\n" +
		"dead waits for a person. Over: the most by which the arrivals of any interval of T seconds exceeded\n" +
		"burst + rate*T + cap; not above 0 means that the contract was kept.\n\n")
	b.WriteString(table(r))
	b.WriteString("\n" + verdicts(r) + "\n" + meaning(r) + "\n\n" + next)
	_, err := w.Write(b.Bytes())
	return err
}

var columns = []string{"tenant", "offered", "delivered", "parked", "dead", "in flight", "cancelled", "dropped",
	"attempts", "p50", "p99", "at once", "contract", "over"}

// rare are the columns that are left out when every row has a 0 there.
var rare = map[string]bool{"cancelled": true, "dropped": true}

func table(r Report) string {
	rows := [][]string{columns}
	attempts := 0
	for _, t := range r.Tenants {
		attempts += t.Attempts
		rows = append(rows, append(terms(t), strconv.Itoa(t.Attempts), figure(t.P50), figure(t.P99),
			fmt.Sprintf("%d of %d", t.MaxInFlight, t.Cap), contractText(t), overText(t)))
	}
	sum := append(terms(r.sum()), strconv.Itoa(attempts))
	rows = append(rows, append(sum, make([]string, len(columns)-len(sum))...))
	return align(rows, func(column int) bool {
		return rare[columns[column]] && !slices.ContainsFunc(rows[1:], func(row []string) bool { return row[column] != "0" })
	})
}

// terms of the account as cells.
func terms(t TenantReport) []string {
	cells := []string{t.Tenant}
	for _, n := range []uint64{t.Offered, t.Delivered, t.Parked, t.Dead, t.InFlight, t.Cancelled, t.Dropped} {
		cells = append(cells, strconv.FormatUint(n, 10))
	}
	return cells
}

func contractText(t TenantReport) string {
	if t.Rate == nil {
		return "-"
	}
	return fmt.Sprintf("%g/s+%d", *t.Rate, *t.Burst)
}

func overText(t TenantReport) string {
	if t.Rate == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f", t.OverContract)
}

// align pads the columns, the first to the left and the others to the right, and leaves
// out those that skip names.
func align(rows [][]string, skip func(column int) bool) string {
	lines := make([]strings.Builder, len(rows))
	for column := range rows[0] {
		if skip(column) {
			continue
		}
		width := 0
		for _, row := range rows {
			width = max(width, len(row[column]))
		}
		for i, row := range rows {
			if column == 0 {
				fmt.Fprintf(&lines[i], "%-*s", width, row[column])
			} else {
				fmt.Fprintf(&lines[i], "  %*s", width, row[column])
			}
		}
	}
	var b strings.Builder
	for i := range lines {
		b.WriteString(strings.TrimRight(lines[i].String(), " ") + "\n")
	}
	return b.String()
}

// verdicts says in a line each what held.
func verdicts(r Report) string {
	var b strings.Builder
	if r.Balanced {
		fmt.Fprintf(&b, "Every trigger is accounted for: %d offered = delivered + parked + dead + in flight + cancelled + dropped,\nfor each tenant and in all. ", r.Offered)
	} else {
		b.WriteString("THE ACCOUNT DOES NOT ADD UP: see the rows above. ")
	}
	fmt.Fprintf(&b, "Duplicates: %d.\n", r.Duplicates)
	b.WriteString(limits(r))
	fmt.Fprintf(&b, "Fairness (Jain's index over served/entitled): %.3f; tenants below 0.97: %d.\n", r.Jain, r.ShortChanged)
	fmt.Fprintf(&b, "The failing endpoint got %.2f attempts for each delivery offered to it.\n", r.FailingAmplification)
	return b.String()
}

// limits says whether caps and contracts held.
func limits(r Report) string {
	var broken []string
	for _, t := range r.Tenants {
		if !t.kept() {
			broken = append(broken, t.Tenant)
		}
	}
	if len(broken) > 0 {
		return "LIMITS DID NOT HOLD for " + strings.Join(broken, ", ") + ".\n"
	}
	return "No endpoint had more than its cap in flight, or more than its contract in any interval.\n"
}

// meaning says what the three p99s mean, in one sentence.
func meaning(r Report) string {
	alone, with, without := r.SteadyP99Alone, r.SteadyP99With, r.SteadyP99Unprotected
	if alone == nil || with == nil || *alone == 0 {
		return "The steady tenant got too little to compare."
	}
	s := fmt.Sprintf("99 of 100 of the steady tenant's triggers arrived within %s alone, within %s (%.1fx) beside %d neighbours,",
		figure(alone), figure(with), *with / *alone, len(r.Tenants)-1)
	if without == nil {
		return s + "\nand none arrived beside the same neighbours without protections."
	}
	s += "\nand "
	if r.SteadyArrived < r.SteadyPosted {
		s += fmt.Sprintf("of the %d of %d that arrived at all ", r.SteadyArrived, r.SteadyPosted)
	}
	return s + fmt.Sprintf("within %s (%.0fx) beside the same neighbours\nwithout caps, breakers, retry budgets and fair order.",
		figure(without), *without / *alone)
}

const next = `Where to look next:
  fairlane serve --dev      the same service, waiting for your first trigger
  fairlane sink             an endpoint that prints what it gets; --mode black-hole for a bad one
  fairlane demo --json      these figures for a script
  fairlane serve --help     and --help on every other command
`

// figure prints milliseconds.
func figure(ms *float64) string {
	if ms == nil {
		return "-"
	}
	return span(time.Duration(*ms * float64(time.Millisecond)))
}

// span prints a duration with the digits that matter.
func span(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%.0f ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
