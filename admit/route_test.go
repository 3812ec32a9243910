package admit

import (
	"strings"
	"testing"
)

func TestRoutesMatchWholeSegmentsOfTheCleanPath(t *testing.T) {
	g := newGate(t, Config{Routes: []Route{
		{Name: "one", Path: "/a/*/c"}, {Name: "all", Path: "/files/**"}, {Name: "post", Methods: []string{"POST"}, Path: "/x"}, {Name: "root", Path: "/"},
	}})
	for path, want := range map[string]string{
		"/a/b/c": "one", "/a/b/c/": "one", "//a/b/c": "one", "/a/c": "default", "/a/b/c/d": "default", "/a//c": "default",
		"/files": "all", "/files/": "all", "/files/x/y": "all", "/filesx": "default", "/": "root", "": "root", "/x": "default", "*": "default",
		"/a/b%20;c/c": "one", "/files/%2e%2fx": "all", "/files/a%2Fb": "all", "/none/a%2Fb": "default", "/%66iles": "all", "/.well-known/x": "default",
	} {
		if got, ok := g.Route("GET", path); got != want || !ok {
			t.Errorf("%q is %s, %v; want %s", path, got, ok, want)
		}
	}
}

// No spelling of a path, and no method that a service takes for another, leads past
// the policies of the route that the service then serves.
// Field case 88.
func TestNoSpellingLeadsPastARoute(t *testing.T) {
	g := newGate(t, Config{Routes: []Route{
		{Name: "head", Methods: []string{"HEAD"}, Path: "/cheap"},
		{Name: "cheap", Path: "/cheap"},
		{Name: "rows", Path: "/reports/*/rows"},
		{Name: "report", Methods: []string{"GET", "POST"}, Path: "/reports/*"},
		{Name: "export", Path: "/export/**"},
	}})
	for _, tc := range []struct{ method, path, want string }{
		{"GET", "/reports/1", "report"},
		{"GET", "/reports/1/", "report"},
		{"GET", "//reports//1", "report"},
		{"GET", "/%72eports/%31", "report"},
		{"GET", "/Reports/1", "report"},
		{"HEAD", "/reports/1", "report"},
		{"post", "/reports/1", "report"},
		{"HEAD", "/cheap", "head"},
		{"DELETE", "/reports/1", "default"},
		{"GET", "/reports/1;v=2", "report"},
		{"GET", "/export/../export/x", "export"},
		// by how they are read
		{"GET", "/reports;v=2/1", ""},
		{"GET", "/reports/..%2Fcheap", ""},
		{"GET", "/reports/x%2f..%2f..%2fcheap", ""},
		{"GET", "/reports/a%2Fb", ""},
		{"GET", "/reports%2Fa", ""},
		{"GET", "/reports/a%5Cb", ""},
		{"GET", `/reports\a`, ""},
		{"GET", "/reports%2Fa%5Cb", ""},
		{"GET", "/export/../cheap", ""},
		{"GET", "/export/%2e%2E/cheap", ""},
		{"GET", "/export/..;/cheap", ""},
		{"GET", "/cheap/../reports/%2e%2e", ""},
		{"GET", "/reports/./rows", ""},
		{"GET", "/reports/1;x%2F..%2F..%2Fcheap", ""},
		{"GET", "/cheap;" + strings.Repeat("x", 1<<10), ""},
	} {
		if got, ok := g.Route(tc.method, tc.path); ok != (tc.want != "") || ok && got != tc.want {
			t.Errorf("%s %s is %s, %v; want %q", tc.method, tc.path, got, ok, tc.want)
		}
	}
	if _, ok := newGate(t, Config{}).Route("GET", "/a/..%2Fb"); !ok {
		t.Error("without routes there is nothing to be in doubt about")
	}
}

// BenchmarkRoute is of a path as most are, and of the longest that is in doubt.
func BenchmarkRoute(b *testing.B) {
	g, _, err := NewGate(Config{Routes: []Route{{Name: "report", Path: "/reports/*/rows"}, {Name: "export", Path: "/export/**"}}})
	if err != nil {
		b.Fatal(err)
	}
	for name, path := range map[string]string{"plain": "/users/17/reports/2026", "doubtful": "/" + strings.Repeat(`.\;%2F`, 1<<10/6)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				g.Route("GET", path)
			}
		})
	}
}
