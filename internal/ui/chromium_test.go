package ui_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/fairlane-dev/fairlane/internal/receiver"
)

var (
	shots = flag.String("shots", "", "directory for a picture of each page in both themes")
	axe   = filepath.Join("..", "..", "bin", "axe-4.14.1.min.js")
)

// tab is a page of a real Chromium that watches what the page does.
type tab struct {
	context.Context
	t    *testing.T
	s    *service
	host string

	mu       sync.Mutex
	problems []string // requests to elsewhere, script errors, what the policy stopped
}

// chromium opens a tab, signed in as nobody. It skips where there is none.
func (s *service) chromium() *tab {
	s.t.Helper()
	name, err := exec.LookPath("chromium")
	if err != nil {
		s.t.Skip("SKIPPED: the pages are not tried in a browser, for there is no chromium; scripts/tools installs it")
	}
	opts := []chromedp.ExecAllocatorOption{chromedp.ExecPath(name), chromedp.UserDataDir(s.t.TempDir()), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun}
	for _, f := range []string{"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync", "disable-dev-shm-usage"} {
		opts = append(opts, chromedp.Flag(f, true))
	}
	alloc, end := chromedp.NewExecAllocator(context.Background(), opts...)
	s.t.Cleanup(end)
	ctx, cancel := chromedp.NewContext(alloc)
	s.t.Cleanup(cancel)
	c := &tab{t: s.t, s: s, host: must(url.Parse(s.URL())).Host}
	var over context.CancelFunc
	c.Context, over = context.WithTimeout(ctx, 2*time.Minute)
	s.t.Cleanup(over)
	if err := chromedp.Listen(c, c.watch); err != nil {
		s.t.Fatal(err)
	}
	call(c, network.Enable, network.EnableParams{})
	call(c, log.Enable, cdp.Empty{})
	call(c, runtime.Enable, cdp.Empty{})
	return c
}

func (c *tab) run(steps ...chromedp.Action[chromedp.Void]) {
	c.t.Helper()
	if err := chromedp.Do(c, steps...); err != nil {
		c.t.Fatal(err)
	}
}

func call[P, R any](c *tab, command cdp.Command[P, R], params P) {
	c.t.Helper()
	if _, err := chromedp.Call(c, command, params); err != nil {
		c.t.Fatal(err)
	}
}

func (c *tab) watch(event any) {
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err != nil || u.Host != c.host && u.Scheme != "data" {
			c.problem("a request to " + e.Request.URL)
		}
	case *runtime.EventExceptionThrown:
		c.problem(fmt.Sprintf("a script error: %+v", e.ExceptionDetails))
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			c.problem("an error: " + e.Entry.Text + " " + e.Entry.URL)
		}
	}
}

func (c *tab) problem(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problems = append(c.problems, text)
}

// quiet fails the test if the page did what it must not.
func (c *tab) quiet(page string) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.problems {
		c.t.Errorf("%s: %s", page, p)
	}
	c.problems = nil
}

func (c *tab) open(page string) {
	c.t.Helper()
	c.run(chromedp.Navigate(c.s.URL()+page), chromedp.WaitReady(chromedp.CSS("main")))
}

func (c *tab) signIn() {
	c.t.Helper()
	c.open("/")
	c.run(chromedp.SendKeys(chromedp.CSS("#key"), adminKey+"\r"), chromedp.WaitVisible(chromedp.CSS("a[aria-current=page]")))
}

// value is what an expression, or its promise, comes to.
func value[T any](c *tab, expression string) T {
	c.t.Helper()
	v, err := chromedp.Run(c, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		c.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// wait waits until an expression is true, over the loading of pages.
func (c *tab) wait(expression string) {
	c.t.Helper()
	defer func() {
		if c.t.Failed() {
			text, _ := chromedp.Run(c, chromedp.Evaluate[string](`location.href + " " + document.body.innerText`))
			c.t.Log(text)
		}
	}()
	until(c.t, expression, func() bool {
		ok, err := chromedp.Run(c, chromedp.Evaluate[bool](expression))
		return err == nil && ok
	})
}

// click clicks what a path in XPath finds, again if it was replaced by a newer one just then.
func (c *tab) click(path string) {
	c.t.Helper()
	until(c.t, "a click on "+path, func() bool {
		short, end := context.WithTimeout(c, 3*time.Second)
		defer end()
		return chromedp.Do(short, chromedp.Click(chromedp.Search(path))) == nil
	})
}

// theme asks for light or dark, and a size.
func (c *tab) theme(name string, width, height int64) {
	c.t.Helper()
	call(c, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
	call(c, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
}

// accessible holds the page against axe-core's rules.
func (c *tab) accessible(page string) {
	c.t.Helper()
	source, err := os.ReadFile(axe)
	if err != nil {
		return // said once, by the test
	}
	value[int](c, string(source)+";0")
	var found []struct {
		ID, Help string
		Nodes    []struct {
			HTML    string
			Summary string `json:"failureSummary"`
		}
	}
	raw := value[string](c, `axe.run(document, {resultTypes: ["violations"]}).then(r => JSON.stringify(r.violations))`)
	if err := json.Unmarshal([]byte(raw), &found); err != nil {
		c.t.Fatal(err)
	}
	for _, v := range found {
		c.t.Errorf("%s: %s: %s: %+v", page, v.ID, v.Help, v.Nodes[:min(len(v.Nodes), 2)])
	}
}

func (c *tab) picture(page, theme string) {
	c.t.Helper()
	if *shots == "" {
		return
	}
	image, err := chromedp.Run(c, chromedp.FullScreenshot(100))
	if err != nil {
		c.t.Fatal(err)
	}
	name := strings.Trim(strings.NewReplacer("/", "_", "?", "_", "&", "_", "=", "_").Replace(page), "_")
	if name == "" {
		name = "overview"
	}
	if err := os.WriteFile(filepath.Join(*shots, name+"."+theme+".png"), image, 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// Every page, in both themes, on a phone and on a wide screen: nothing is asked of another host, no script
// fails, the policy stops nothing, nothing is wider than the screen, and axe-core finds nothing.
func TestEveryPageInChromium(t *testing.T) {
	s := start(t, nil)
	c := s.chromium()
	if _, err := os.Stat(axe); err != nil {
		t.Log("SKIPPED: accessibility is not judged, for axe-core is missing; scripts/tools fetches it")
	}
	s.demo()
	s.post("noisy", 60, "x")
	s.post("steady", 50, "x")
	s.post("blackhole", 8, "x")
	s.post("failing", 8, "x")
	dead := s.dead()
	c.open("/")
	c.accessible("sign-in")
	c.picture("/sign-in", "light")
	c.signIn()
	link := value[string](c, `fetch("/ui/tenants/picky/link?life=1h&may=act").then(r => r.text()).then(t => t.match(/\/ui\/t\/[^"]+/)[0])`)
	names := map[string]string{s.subs["picky"]: "picky", s.subs["noisy"]: "noisy", s.subs["failing"]: "failing", dead: "letter", strings.Trim(link, "/"): "link"}
	pages := append([]string{}, link)
	for _, page := range s.everyPage(dead) {
		pages = append(pages, "/ui"+page)
	}
	for _, page := range pages {
		c.open(page)
		short := strings.TrimPrefix(page, "/ui/")
		for id, name := range names {
			short = strings.ReplaceAll(short, strings.TrimPrefix(id, "ui/"), name)
		}
		for _, theme := range []string{"light", "dark"} {
			c.theme(theme, 1280, 800)
			c.accessible(short + ", " + theme)
			c.picture(short, theme)
		}
		c.theme("light", 360, 740)
		if wide := value[int](c, `document.documentElement.scrollWidth`); wide > 360 {
			t.Errorf("%s is %d wide on a phone of 360", short, wide)
		}
		c.picture(short, "phone")
		if title := value[string](c, `document.title`); title == "owned" {
			t.Errorf("%s ran a payload", short)
		}
		c.quiet(short)
	}
}

// The overview's figures move by themselves; the list of lanes sorts and searches; all of it by keyboard.
func TestFiguresMove(t *testing.T) {
	s := start(t, nil)
	c := s.chromium()
	s.demo()
	c.signIn()
	figure := func(name string) string {
		return fmt.Sprintf(`[...document.querySelectorAll("dt")].find(e => e.textContent === %q).nextElementSibling.textContent`, name)
	}
	c.wait(`document.getElementById("liveness").textContent.startsWith("Live")`)
	before := value[string](c, figure("Delivered"))
	s.post("steady", 7, "x")
	c.wait(figure("Delivered") + ` !== "` + before + `"`)
	c.wait(figure("Delivered") + ` === "7"`)

	c.open("/ui/lanes")
	rows := `[...document.querySelectorAll("tbody tr")].map(e => e.cells[1].textContent.trim()).join(" ")`
	c.click(`//th/a[text()="Tenant"]`)
	c.wait(rows + ` === "blackhole failing noisy picky slow steady"`)
	c.click(`//th/a[text()="Tenant"]`)
	c.wait(rows + ` === "steady slow picky noisy failing blackhole"`)
	c.click(`//th/a[text()="Delivered"]`)
	c.wait(`document.querySelector("tbody tr").cells[1].textContent.trim() === "steady"`)
	c.run(chromedp.SendKeys(chromedp.CSS("#q"), "nois\r"))
	c.wait(rows + ` === "noisy"`)

	c.run(chromedp.KeyEvent("\t"))
	c.wait(`document.activeElement.className === "skip"`)
	c.run(chromedp.KeyEvent("\r"))
	c.wait(`document.activeElement.id === "main"`)
	c.quiet("lanes")
}

// A dead letter is looked at, counted and replayed by clicks, and its endpoint gets it.
func TestReplayInChromium(t *testing.T) {
	s := start(t, nil)
	c := s.chromium()
	s.demo()
	dead := s.dead()
	s.picky.Become(receiver.OK(0))
	had := s.picky.Tally().Attempts
	c.signIn()
	c.open("/ui/dead?tenant=picky")
	c.wait(`document.getElementById("liveness").textContent.startsWith("Live")`)
	c.click(`//a[text()="` + dead + `"]`)
	c.wait(`document.querySelector("pre") !== null`)
	c.click(`//button[text()="Replay it…"]`)
	c.wait(`document.querySelector("#rate") !== null`)
	c.click(`//main//button[text()="Replay"]`)
	c.wait(`document.querySelector("[data-part=live-replay]")?.textContent.includes("done")`)
	if got := s.picky.Tally().Attempts; got <= had {
		t.Errorf("the endpoint got %d requests, and %d before the replay", got, had)
	}
	c.quiet("replay")
}
