package demo

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// The picture is well-formed, names its three bars with their figures and units, and draws the longer
// time as the longer bar.
func TestPictureShowsTheThreeFigures(t *testing.T) {
	ms := func(x float64) *float64 { return &x }
	var b strings.Builder
	r := Report{SteadyP99Alone: ms(23), SteadyP99With: ms(31.4), SteadyP99Unprotected: ms(8900)}
	if err := WritePicture(&b, r); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{">23 ms<", ">31.4 ms<", ">8.9 s<", ">10 ms<", ">10 s<", "protections off"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s is missing", want)
		}
	}
	if low, high := decades([]bar{{ms: 23}, {ms: 8900}}); low != 10 || high != 10000 {
		t.Errorf("axis from %v to %v", low, high)
	}
	if place(31.4, 10, 10000) <= place(23, 10, 10000) || place(8900, 10, 10000) <= place(31.4, 10, 10000) {
		t.Error("a longer time is not the longer bar")
	}
	if err := WritePicture(io.Discard, Report{SteadyP99Alone: ms(1)}); err == nil {
		t.Error("a picture of nothing")
	}
}
