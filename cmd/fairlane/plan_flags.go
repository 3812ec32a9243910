package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The flags of `fairlane plan` read units and name the mistakes in them. What a figure may be is
// the plan's business; only what must not be 0 is refused here, because a plan takes 0 for its
// default.

// value is a pflag.Value with a reader of its own.
type value struct {
	kind string
	text string
	read func(string) error
}

func (v *value) String() string { return v.text }
func (v *value) Type() string   { return v.kind }

func (v *value) Set(s string) error {
	v.text = s
	return v.read(s)
}

// addFlag adds a flag that read stores in *to. text is its default, "" for none, which must be given.
func addFlag[T comparable](cmd *cobra.Command, to *T, name, kind, text, usage string, read func(string) (T, error)) {
	var zero T
	v := &value{kind: kind, text: text}
	v.read = func(s string) error {
		x, err := read(s)
		if *to = x; err == nil && x == zero && text != "" && text != "0" && text != "0s" {
			return errors.New("must be above 0")
		}
		return err
	}
	if text != "" {
		if err := v.read(text); err != nil {
			panic(err) // a default of ours
		}
	}
	cmd.Flags().Var(v, name, usage)
	if text == "" {
		if err := cmd.Flags().SetAnnotation(name, required, nil); err != nil {
			panic(err) // it was just added
		}
	}
}

const required = "required"

// missing names the flags that must be given and are not.
func missing(cmd *cobra.Command) error {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if _, must := f.Annotations[required]; must && !f.Changed {
			names = append(names, "--"+f.Name)
		}
	})
	if len(names) == 0 {
		return nil
	}
	return usageError{fmt.Errorf("%s must be given; see %s --help", strings.Join(names, ", "), cmd.CommandPath())}
}

func rateFlag(cmd *cobra.Command, to *float64, name, text, usage string) {
	addFlag(cmd, to, name, "rate", text, usage, readRate)
}

func durationFlag(cmd *cobra.Command, to *time.Duration, name, text, usage string) {
	addFlag(cmd, to, name, "duration", text, usage, readDuration)
}

func numberFlag(cmd *cobra.Command, to *float64, name, text, usage string) {
	addFlag(cmd, to, name, "number", text, usage, readNumber)
}

func shareFlag(cmd *cobra.Command, to *float64, name, text, usage string) {
	addFlag(cmd, to, name, "share", text, usage, readShare)
}

func sizeFlag(cmd *cobra.Command, to *float64, name, text, usage string) {
	addFlag(cmd, to, name, "size", text, usage, readSize)
}

func wholeFlag(cmd *cobra.Command, to *int, name, text, usage string) {
	addFlag(cmd, to, name, "number", text, usage, func(s string) (int, error) {
		x, err := strconv.Atoi(s)
		if err != nil {
			return 0, errors.New("must be a whole number without a unit, for example 40")
		}
		return x, nil
	})
}

func readNumber(s string) (float64, error) {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, errors.New("must be a number without a unit, for example 240")
	}
	return x, nil
}

var periods = map[string]float64{"s": 1, "m": 60, "h": 3600, "d": 86400}

// readRate returns an amount per second.
func readRate(s string) (float64, error) {
	amount, period, given := strings.Cut(s, "/")
	x, err := strconv.ParseFloat(amount, 64)
	seconds, known := periods[period]
	if err != nil || given && !known {
		return 0, errors.New("a rate is an amount per s, m, h or d, for example 120/s or 7200/m")
	}
	if !given {
		return x, nil
	}
	return x / seconds, nil
}

// readDuration is time.ParseDuration with days.
func readDuration(s string) (time.Duration, error) {
	if d, err := time.ParseDuration(s); err == nil && !isNumber(s) {
		return d, nil
	}
	if days, found := strings.CutSuffix(s, "d"); found {
		if x, err := strconv.ParseFloat(days, 64); err == nil && math.Abs(x) <= 100_000 {
			return time.Duration(x * 24 * float64(time.Hour)), nil
		}
	}
	if isNumber(s) {
		return 0, fmt.Errorf("a duration needs a unit, for example %sms", s)
	}
	return 0, errors.New("must be a duration with a unit, for example 120ms, 1s or 2m30s")
}

func isNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}

func readShare(s string) (float64, error) {
	number, percent := strings.CutSuffix(s, "%")
	x, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, errors.New("must be a share, for example 0.1 or 10%")
	}
	if percent {
		x /= 100
	}
	return x, nil
}

var sizes = []struct {
	name  string
	bytes float64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}, {"", 1}}

func readSize(s string) (float64, error) {
	for _, u := range sizes {
		number, found := strings.CutSuffix(s, u.name)
		if x, err := strconv.ParseFloat(number, 64); found && err == nil {
			return x * u.bytes, nil
		}
	}
	return 0, errors.New("must be a size in bytes, for example 900 or 64KiB")
}
