package journal

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A kill keeps the page cache, so it cannot tell a synced write from none. Here a child runs under strace,
// and its writes and syncs are replayed: a directory is made of what had been synced when an
// acknowledgement was given, and of nothing else, as after a loss of power.

// disk is a model of a file system: what programs see, and what would be left.
type disk struct {
	dir   string
	files map[string]*inode
	kept  map[string]*inode // by the names that are durable: a directory keeps those it had at its last sync
	fds   map[string]*handle
	out   func(line string) // what was written to standard output
}

type inode struct {
	now, kept []byte
	dir       bool
}

type handle struct {
	path string
	file *inode // nil: not one of ours
	off  int
	sync bool // O_SYNC
	app  bool // O_APPEND
}

func newDisk(dir string) *disk {
	return &disk{dir: dir, files: make(map[string]*inode), kept: make(map[string]*inode), fds: make(map[string]*handle)}
}

func (d *disk) ours(path string) bool { return strings.HasPrefix(path, d.dir+"/") || path == d.dir }

// call is one finished system call. Of a sync, begun holds what the file was when it began.
type call struct {
	name, args, result string
	begun              map[string][]byte
}

func (d *disk) apply(t testing.TB, c *call) {
	if strings.HasPrefix(c.result, "-1") || strings.HasPrefix(c.result, "?") {
		return
	}
	args := splitArgs(c.args)
	switch c.name {
	case "openat":
		d.open(unhex(args[1]), args[2], c.result)
	case "close":
		delete(d.fds, fdNumber(args[0]))
	case "write", "pwrite64":
		d.write(t, args, c.result)
	case "fsync", "fdatasync":
		d.sync(fdPath(args[0]), c.begun)
	case "ftruncate":
		if f := d.files[fdPath(args[0])]; f != nil {
			f.resize(atoi(args[1]))
		}
	case "renameat", "renameat2":
		d.rename(unhex(args[1]), unhex(args[3]))
	case "unlinkat":
		delete(d.files, unhex(args[1]))
	case "mkdirat":
		d.files[unhex(args[1])] = &inode{dir: true}
	case "lseek", "fallocate":
	default:
		if strings.Contains(c.args, d.dir) {
			t.Fatalf("system call that the replay does not know: %s", c.name)
		}
	}
}

func (f *inode) resize(n int) {
	if n <= len(f.now) {
		f.now = f.now[:n:n]
	} else {
		f.now = append(f.now, make([]byte, n-len(f.now))...)
	}
}

func (d *disk) open(path, flags, fd string) {
	h := &handle{path: path, sync: strings.Contains(flags, "SYNC") && !strings.Contains(flags, "O_DSYNC_"), app: strings.Contains(flags, "O_APPEND")}
	d.fds[fdNumber(fd)] = h
	if !d.ours(path) || strings.Contains(flags, "O_DIRECTORY") {
		return
	}
	h.file = d.files[path]
	if h.file == nil && strings.Contains(flags, "O_CREAT") {
		h.file = &inode{}
		d.files[path] = h.file
	}
	if h.file != nil && strings.Contains(flags, "O_TRUNC") {
		h.file.now = nil
	}
}

func (d *disk) write(t testing.TB, args []string, result string) {
	data, fd := unhex(args[1]), fdNumber(args[0])
	if n := atoi(result); n < len(data) {
		data = data[:n]
	}
	if fd == "1" {
		for line := range strings.Lines(data) {
			d.out(strings.TrimSuffix(line, "\n"))
		}
		return
	}
	h := d.fds[fd]
	if h == nil || h.file == nil {
		if d.ours(fdPath(args[0])) {
			t.Fatalf("write to %s, which was not opened", fdPath(args[0]))
		}
		return
	}
	at := h.off
	switch {
	case len(args) == 4:
		at = atoi(args[3])
	case h.app:
		at = len(h.file.now)
	}
	if end := at + len(data); end > len(h.file.now) {
		h.file.resize(end)
	}
	copy(h.file.now[at:], data)
	if len(args) == 3 {
		h.off = at + len(data)
	}
	if h.sync {
		d.sync(h.path, nil)
	}
}

// sync makes durable what the file was when the call began.
func (d *disk) sync(path string, begun map[string][]byte) {
	if f := d.files[path]; f != nil {
		if data, ok := begun[path]; ok {
			f.kept = data
		} else {
			f.kept = bytes.Clone(f.now)
		}
	}
	for p := range d.kept {
		if filepath.Dir(p) == path && d.files[p] == nil {
			delete(d.kept, p)
		}
	}
	for p, f := range d.files {
		if filepath.Dir(p) == path {
			d.kept[p] = f
		}
	}
}

func (d *disk) rename(from, to string) {
	for p, f := range maps.Clone(d.files) {
		if rest, ok := strings.CutPrefix(p, from); ok && (rest == "" || rest[0] == '/') {
			delete(d.files, p)
			d.files[to+rest] = f
		}
	}
}

// named reports whether dir, and all above it that belong to us, have a durable name.
func (d *disk) named(dir string) bool {
	return dir == d.dir || d.kept[dir] != nil && d.named(filepath.Dir(dir))
}

// materialize writes what is left into the directory to.
func (d *disk) materialize(t testing.TB, to string) {
	t.Helper()
	for path, f := range d.kept {
		if f.dir || !d.named(filepath.Dir(path)) {
			continue
		}
		name := to + strings.TrimPrefix(path, d.dir)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, f.kept, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const unfinished = " <unfinished ...>"

// replay applies a trace, in the order in which the calls returned.
func (d *disk) replay(t testing.TB, trace string) {
	t.Helper()
	f, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pending := make(map[string]*call) // by thread
	in := bufio.NewReaderSize(f, 1<<20)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		thread, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		rest = strings.TrimLeft(rest, " ")
		if _, resumed, ok := strings.Cut(rest, " resumed>"); ok && strings.HasPrefix(rest, "<... ") {
			if c := pending[thread]; c != nil {
				delete(pending, thread)
				d.finish(t, c, c.args+resumed)
			}
			continue
		}
		name, args, _ := strings.Cut(rest, "(")
		c := &call{name: name}
		head, cut := strings.CutSuffix(args, unfinished)
		if !cut {
			d.finish(t, c, args)
			continue
		}
		c.args = head
		if path := fdPath(head); strings.HasSuffix(c.name, "sync") && d.files[path] != nil {
			c.begun = map[string][]byte{path: bytes.Clone(d.files[path].now)}
		}
		pending[thread] = c
	}
}

func (d *disk) finish(t testing.TB, c *call, rest string) {
	i := strings.LastIndex(rest, " = ")
	if i < 0 {
		return
	}
	c.args, c.result = strings.TrimSuffix(strings.TrimRight(rest[:i], " "), ")"), rest[i+3:]
	d.apply(t, c)
}

// splitArgs cuts at commas outside of strings and paths, in which everything is written in hex.
func splitArgs(s string) []string {
	var out []string
	depth, quoted, from := 0, false, 0
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '<' || c == '{' || c == '[':
			depth++
		case c == '>' || c == '}' || c == ']':
			depth--
		case c == ',' && depth == 0:
			out = append(out, strings.TrimSpace(s[from:i]))
			from = i + 1
		}
	}
	return append(out, strings.TrimSpace(s[from:]))
}

// unhex reads "\x61\x62".
func unhex(s string) string {
	s = strings.Trim(s, `"`)
	b := make([]byte, 0, len(s)/4)
	for i := 0; i+4 <= len(s); i += 4 {
		v, _ := strconv.ParseUint(s[i+2:i+4], 16, 8)
		b = append(b, byte(v))
	}
	return string(b)
}

// fdNumber and fdPath take "7<\x2f\x61>" apart.
func fdNumber(s string) string { n, _, _ := strings.Cut(s, "<"); return n }

func fdPath(s string) string {
	_, p, _ := strings.Cut(s, "<")
	p, _, _ = strings.Cut(p, ">")
	return unhex(p)
}

func atoi(s string) int {
	n, _ := strconv.Atoi(strings.TrimSpace(s))
	return n
}

// tracedChild runs a child that appends so much and ends without a clean stop.
func tracedChild(t *testing.T, dir, mode string, appends int) (trace string) {
	t.Helper()
	trace = filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command("strace", "-f", "-qq", "-y", "-xx", "-s", "100000000", "-e", "signal=none", "-o", trace,
		"-e", "trace=openat,open,creat,write,pwrite64,writev,pwritev,pwritev2,fsync,fdatasync,sync_file_range,rename,renameat,renameat2,"+
			"unlink,unlinkat,ftruncate,truncate,mkdirat,link,linkat,close,dup,dup2,dup3,lseek,fallocate,copy_file_range,sendfile", os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir, childModeEnv+"="+mode, childMostEnv+"="+strconv.Itoa(appends))
	if out, err := cmd.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "ptrace") {
			t.Skipf("strace is not permitted to trace here (a container without CAP_SYS_PTRACE?): %s", out)
		}
		t.Fatalf("%v: %.2000s", err, out)
	}
	return trace
}

func needStrace(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("NOT TESTED: that acknowledged writes are synced. Install strace (Debian package strace).")
	}
}

// lostByPowerCut replays traces, and cuts the power right behind every so many-th acknowledgement and at
// the end.
func lostByPowerCut(t *testing.T, dir string, traces []string, every int) (lost []string) {
	t.Helper()
	a, n, first := newAcknowledged(), 0, rand.IntN(every)
	d := newDisk(dir)
	cut := func() {
		left := t.TempDir()
		d.materialize(t, left)
		lost = append(lost, lostIn(t, left, a, n)...)
	}
	d.out = func(line string) {
		a.line(line)
		if n++; n%every == first {
			cut()
		}
	}
	for _, tr := range traces {
		d.replay(t, tr)
	}
	cut()
	t.Logf("%d acknowledgements", n)
	return lost
}

// lostIn opens what is left after a power cut.
func lostIn(t *testing.T, dir string, a *acknowledged, n int) []string {
	t.Helper()
	o := testOptions(dir)
	j, err := Open(t.Context(), o)
	if err != nil {
		return []string{fmt.Sprintf("after %d lines: does not open: %v", n, err)}
	}
	defer closeJournal(t, j)
	lost := a.lost(t, j)
	for i := range lost {
		lost[i] = fmt.Sprintf("after %d lines: %s", n, lost[i])
	}
	return lost
}

// Field case 83.
func TestNothingAcknowledgedIsLostWithWhatWasNotSynced(t *testing.T) {
	needStrace(t)
	dir := filepath.Join(t.TempDir(), "data")
	traces := []string{
		tracedChild(t, dir, "", 160),         // a fresh start
		tracedChild(t, dir, "", 80),          // existing files
		tracedChild(t, dir, "trim,big", 120), // blocks roll, and are purged
		tracedChild(t, dir, "", 80),
	}
	every := 400
	if *torture {
		every = 20
	}
	if lost := lostByPowerCut(t, dir, traces, every); len(lost) > 0 {
		t.Fatalf("%d lost: %.2000q", len(lost), lost)
	}
}

// The test above has to notice a journal that does not sync.
func TestWithoutSyncThePowerCutTestFindsLosses(t *testing.T) {
	needStrace(t)
	dir := filepath.Join(t.TempDir(), "data")
	lost := lostByPowerCut(t, dir, []string{tracedChild(t, dir, "nosync", 160)}, 1<<30)
	if len(lost) == 0 {
		t.Fatal("nothing was lost")
	}
	if !slices.ContainsFunc(lost, func(s string) bool { return strings.Contains(s, "trigger") }) {
		t.Errorf("lost, but no trigger: %.500q", lost)
	}
}
