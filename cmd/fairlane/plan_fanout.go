package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlane-dev/fairlane/plan"
	"github.com/fairlane-dev/fairlane/sim/picture"
)

func newPlanFanOutCmd() *cobra.Command {
	var in plan.FanOutInput
	var file string
	cmd := &cobra.Command{
		Use:   "fan-out",
		Short: "How long a trigger takes until all of its deliveries are done",
		Long: `How long a trigger takes until all of its N deliveries are done: the maximum of N draws, F(t)^N.
A delivery's latency is log-normal by a median and a quantile of its tail, or as in a file of
samples, a duration a line. With --bad-share one of the N goes to a pathological tenant that takes
--bad with that probability.`,
		Example: "  fairlane plan fan-out --n 40 --p50 8ms --tail 400ms\n  fairlane plan fan-out --n 40 --samples latencies.txt --bad 2s --bad-share 5%",
	}
	wholeFlag(cmd, &in.N, "n", "", "deliveries of a trigger")
	durationFlag(cmd, &in.Median, "p50", "0s", "median latency of a delivery")
	durationFlag(cmd, &in.Tail, "tail", "0s", "its latency at --tail-at")
	numberFlag(cmd, &in.TailAt, "tail-at", "0.999", "which quantile --tail is")
	cmd.Flags().StringVar(&file, "samples", "", "file of latencies, a duration a line, instead of --p50 and --tail")
	durationFlag(cmd, &in.Bad, "bad", "0s", "latency of the pathological tenant")
	shareFlag(cmd, &in.BadShare, "bad-share", "0", "of its deliveries that take so long")
	return planned(cmd, func() (a answer, err error) {
		if file != "" {
			if in.Samples, err = readSamples(file); err != nil {
				return a, err
			}
		}
		r, err := plan.FanOut(in)
		return answer{json: r, text: fanOutText(in, r), charts: func() []picture.Chart { return fanOutCharts(in, r) }}, err
	})
}

func fanOutText(in plan.FanOutInput, r plan.FanOutResult) []section {
	text := []section{{fmt.Sprintf("All of %s deliveries are done", num(float64(r.N))), [][]string{
		{"", "p50", "p99"},
		{"one delivery", ms(r.SingleP50), ms(r.SingleP99)},
		{"all of them", ms(r.CompletionP50), ms(r.CompletionP99)},
	}}, {"In other words", [][]string{
		{"the median of all is one's", "p" + quantile(r.SingleOfP50)},
		{"the p99 of all is one's", "p" + quantile(r.SingleOfP99)},
		{"one's p99.9 is, of all, the", "p" + quantile(r.P999Becomes)},
	}}}
	if in.BadShare > 0 {
		text[0].rows = append(text[0].rows, []string{"with a pathological one", ms(r.WithBadP50), ms(r.WithBadP99)})
	}
	if !r.Resolved {
		text = append(text, section{"There are too few samples for the p99 of all: it is the largest of them.", nil})
	}
	return text
}

func quantile(p float64) string { return strings.TrimSuffix(fmt.Sprintf("%.3f", 100*p), ".000") }

const maxSamples = 10_000_000

func readSamples(name string) (list []time.Duration, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" {
			continue
		}
		d, err := readDuration(line)
		if err != nil {
			return nil, usageError{fmt.Errorf("%s:%d: %.40q: %w", name, n, line, err)}
		}
		if list = append(list, d); len(list) > maxSamples {
			return nil, usageError{fmt.Errorf("%s: more than %d samples", name, maxSamples)}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(list) == 0 {
		return nil, usageError{fmt.Errorf("%s: no samples", name)}
	}
	return list, nil
}
