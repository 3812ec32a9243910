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

	refused string // the address that is opened to be refused: that is no error

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
	c.Context, over = context.WithTimeout(ctx, 9*time.Minute)
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
		if e.Entry.Level == log.EntryLevelError && (c.refused == "" || !strings.HasSuffix(e.Entry.URL, c.refused)) {
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

// accessible holds the page against axe-core's rules, all or one of them, and finds what has no name.
func (c *tab) accessible(page, rule string) {
	c.t.Helper()
	nameless := `[...document.querySelectorAll("[role=region], nav, progress, svg")].filter(e => !e.getAttribute("aria-label")).map(e => e.outerHTML.slice(0, 80)).join("; ")`
	if found := value[string](c, nameless); found != "" {
		c.t.Errorf("%s: no aria-label: %s", page, found)
	}
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
	only := ""
	if rule != "" {
		only = `, runOnly: ["` + rule + `"]`
	}
	raw := value[string](c, `axe.run(document, {resultTypes: ["violations"]`+only+`}).then(r => JSON.stringify(r.violations))`)
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
	name := strings.Trim(strings.NewReplacer("/", "_", "?", "_", "&", "_", "=", "_", ", ", "_", " ", "_").Replace(page), "_")
	if name == "" {
		name = "overview"
	}
	if err := os.WriteFile(filepath.Join(*shots, name+"."+theme+".png"), image, 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// judge looks at the page that is open, in both themes, on a phone and on a wide screen: nothing is asked of
// another host, no script fails, the policy stops nothing, nothing is wider than the screen, no payload ran, and
// axe-core finds nothing. What depends on the theme is its colours.
func (c *tab) judge(name string) {
	c.t.Helper()
	for _, theme := range []struct{ name, rule string }{{"light", ""}, {"dark", "color-contrast"}} {
		c.theme(theme.name, 1280, 800)
		c.accessible(name+", "+theme.name, theme.rule)
		c.picture(name, theme.name)
	}
	c.theme("light", 360, 740)
	if wide := value[int](c, `document.documentElement.scrollWidth`); wide > 360 {
		c.t.Errorf("%s is %d wide on a phone of 360", name, wide)
	}
	c.picture(name, "phone")
	if title := value[string](c, `document.title`); title == "owned" {
		c.t.Errorf("%s ran a payload", name)
	}
	c.quiet(name)
}

// judged opens pages by name and judges them.
func (c *tab) judged(pages [][2]string) {
	c.t.Helper()
	for _, p := range pages {
		c.open(p[1])
		c.judge(p[0])
	}
}

// Every page in every state: filled, empty, asking, refusing, on a link that may look alone.
func TestEveryPageInChromium(t *testing.T) {
	s := start(t, nil)
	c := s.chromium()
	if _, err := os.Stat(axe); err != nil {
		t.Log("SKIPPED: accessibility is not judged, for axe-core is missing; scripts/tools fetches it")
	}
	c.open("/")
	c.judge("sign-in")
	c.refused = "/ui/sign-in"
	c.run(chromedp.SendKeys(chromedp.CSS("#key"), "wrong\r"), chromedp.WaitVisible(chromedp.CSS("[role=alert]")))
	c.judge("sign-in, refused")
	c.signIn()
	c.judged([][2]string{{"overview, empty", "/ui/"}, {"lanes, empty", "/ui/lanes"}, {"dead, empty", "/ui/dead"}, {"replays, empty", "/ui/replays"}})

	s.demo()
	s.post("noisy", 60, "x")
	s.post("steady", 50, "x")
	s.post("blackhole", 8, "x")
	s.post("failing", 8, "x")
	dead := s.dead()
	s.api("POST", "/v1/tenants", `{"id":"idle","suspended":true}`, nil)
	link := func(may string) string {
		return value[string](c, `fetch("/ui/tenants/picky/link?life=1h&may=`+may+`").then(r => r.text()).then(t => t.match(/\/ui\/t\/[^"]+/)[0])`)
	}
	act, see := link("act"), link("see")
	names := strings.NewReplacer(s.subs["picky"], "picky", s.subs["noisy"], "noisy", s.subs["failing"], "failing", dead, "letter")
	for _, page := range s.everyPage(dead) {
		c.open("/ui" + page)
		c.judge(names.Replace(page))
	}
	c.judged([][2]string{
		{"link", act}, {"link, looking", see}, {"link, looking, lane", see + "lanes/" + s.subs["picky"]},
		{"lanes, nothing found", "/ui/lanes?q=nothing"}, {"lane, empty", "/ui/lanes/" + s.subs["slow"]}, {"dead, none", "/ui/dead?tenant=picky&reason=expired"},
		{"purge, none", "/ui/dead/purge?tenant=slow"}, {"replay, none", "/ui/replays/count?tenant=slow"}, {"tenant, empty", "/ui/tenants/idle"},
		{"link, to be made", "/ui/tenants/idle/link"}, {"links, revoked", "/ui/tenants/idle/link?revoked"}, {"what-if, refused", "/ui/what-if?of=bucket&refill=x"},
	})
	for _, page := range []string{"/ui/nowhere", "/ui/trigger?id=nothing", "/ui/dead?since=nonsense"} {
		c.refused = page
		c.open(page)
		c.judge(page + ", refused")
	}
	c.open("/ui/lanes/" + s.subs["picky"])
	c.click(`//input[@name="sure"]`)
	c.click(`//button[text()="Rotate the secret"]`)
	c.wait(`document.querySelector("h1").textContent === "New secret"`)
	c.judge("rotated")
	c.open("/ui/replays/count?subscription=" + s.subs["picky"])
	c.click(`//main//button[text()="Replay"]`)
	c.wait(`document.querySelector("[data-part=live-replay]") !== null`)
	c.judge("replay")
	c.open("/ui/replays")
	c.judge("replays, some")
}

// A tenant's link shows its own in a browser that has nothing else, and of every other what never was; one that
// may look has nothing to press.
func TestLinkInChromium(t *testing.T) {
	s := start(t, nil)
	c := s.chromium()
	s.demo()
	dead := s.dead()
	admin := s.browser()
	admin.signIn(adminKey)
	link := admin.link("picky", "see")
	c.open(link + "/")
	c.wait(`document.getElementById("liveness").textContent.startsWith("Live")`)
	text := value[string](c, `document.body.innerText`)
	for _, own := range []string{"picky", s.subs["picky"], dead} {
		if !strings.Contains(text, own) {
			t.Errorf("the link's page lacks %s: %s", own, text)
		}
	}
	for tenant, sub := range s.subs {
		if tenant != "picky" && (strings.Contains(text, tenant) || strings.Contains(text, sub)) {
			t.Errorf("the link's page shows %s: %s", tenant, text)
		}
	}
	c.click(`//a[text()="` + s.subs["picky"] + `"]`)
	c.wait(`document.querySelector("h1").textContent.startsWith("Lane")`)
	if n := value[int](c, `document.querySelectorAll("form[method=post]").length`); n != 0 {
		t.Errorf("a link that may look has %d forms that act", n)
	}
	c.quiet("link")
	for _, page := range []string{"/lanes", "/lanes/" + s.subs["steady"], "/tenants/steady", "/dead?tenant=steady"} {
		c.refused = link + page
		c.open(link + page)
		c.wait(`document.querySelector("h1").textContent === "There is nothing here" || document.body.innerText.includes("nothing of this id")`)
	}
	c.quiet("what is not the link's")
}

// The overview's figures move by themselves; the list of lanes sorts and searches; all of it by keyboard. The focus
// stays where it is while figures move around it, and a service that is gone is said to be.
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
	c.wait(`document.querySelector("th[aria-sort=ascending]").textContent === "Tenant"`)
	c.click(`//th/a[text()="Tenant"]`)
	c.wait(rows + ` === "steady slow picky noisy failing blackhole"`)
	c.wait(`document.querySelector("th[aria-sort=descending]").textContent === "Tenant"`)
	c.click(`//th/a[text()="Delivered"]`)
	c.wait(`document.querySelector("tbody tr").cells[1].textContent.trim() === "steady"`)
	c.run(chromedp.SendKeys(chromedp.CSS("#q"), "nois\r"))
	c.wait(rows + ` === "noisy"`)

	c.run(chromedp.KeyEvent("\t"))
	c.wait(`document.activeElement.className === "skip"`)
	c.run(chromedp.KeyEvent("\r"))
	c.wait(`document.activeElement.id === "main"`)

	c.run(chromedp.Evaluate[chromedp.Void](`focused = document.querySelector("tbody a"); focused.focus(); said = document.getElementById("liveness").textContent`))
	until(t, "a part that changed", func() bool {
		s.post("noisy", 1, "x")
		return value[bool](c, `document.getElementById("liveness").textContent !== said`)
	})
	if !value[bool](c, `document.activeElement === focused`) {
		t.Error("a part that changed took the focus away")
	}
	c.quiet("lanes")
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.wait(`document.getElementById("liveness").textContent.startsWith("Connecting again")`)
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
