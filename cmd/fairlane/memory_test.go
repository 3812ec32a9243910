package main

import (
	"bytes"
	"log/slog"
	"math"
	"runtime/debug"
	"strings"
	"testing"
	"testing/fstest"
)

func files(content map[string]string) fstest.MapFS {
	root := fstest.MapFS{}
	for name, text := range content {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return root
}

var groupCases = []struct {
	name, file string
	limit      int64 // with file ""; there is none
	content    map[string]string
}{
	{name: "nothing is known", limit: 0},
	{name: "version 2, in a container of its own", file: "/sys/fs/cgroup/memory.max", limit: 512 << 20, content: map[string]string{
		"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "536870912\n"}},
	{name: "version 2, none", limit: math.MaxInt64, content: map[string]string{
		"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}},
	{name: "version 2, a unit below a slice with less", file: "/sys/fs/cgroup/a.slice/memory.max", limit: 1000, content: map[string]string{
		"proc/self/cgroup": "0::/a.slice/fairlane.service\n",
		"sys/fs/cgroup/a.slice/fairlane.service/memory.max": "2000\n", "sys/fs/cgroup/a.slice/memory.max": "1000\n"}},
	{name: "version 2, the host's name in a container", file: "/sys/fs/cgroup/memory.max", limit: 4096, content: map[string]string{
		"proc/self/cgroup": "0::/kubepods/pod1/c1\n", "sys/fs/cgroup/memory.max": "4096\n"}},
	{name: "version 1", file: "/sys/fs/cgroup/memory/docker/c1/memory.limit_in_bytes", limit: 268435456, content: map[string]string{
		"proc/self/cgroup": "5:devices:/x\n4:cpu,memory:/docker/c1\n0::/\n",
		"sys/fs/cgroup/memory/docker/c1/memory.limit_in_bytes": "268435456\n",
		"sys/fs/cgroup/memory/memory.limit_in_bytes":           "9223372036854771712\n"}},
	{name: "version 1, none", limit: math.MaxInt64, content: map[string]string{
		"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}},
	{name: "what is no number", limit: math.MaxInt64, content: map[string]string{
		"proc/self/cgroup": "0::/\nx\n\n", "sys/fs/cgroup/memory.max": "-1\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "lots"}},
}

func TestTheLeastLimitOfTheControlGroups(t *testing.T) {
	for _, c := range groupCases {
		if limit, file := groupLimit(files(c.content)); limit != c.limit || file != c.file {
			t.Errorf("%s: %d of %q, want %d of %q", c.name, limit, file, c.limit, c.file)
		}
	}
}

// What the operator set stays; else the collector gets nine tenths of the group's limit, or none.
func TestTheCollectorsLimit(t *testing.T) {
	was := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(was)
	group := map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "107374182400\n"} // 100 GiB
	for _, c := range []struct {
		name, env, says string
		content         map[string]string
		want            int64
	}{
		{"no limit", "", "", nil, was},
		{"the group's", "", "from=/sys/fs/cgroup/memory.max", group, 96636764160},
		{"the operator's", "off", "from=GOMEMLIMIT", group, was},
	} {
		debug.SetMemoryLimit(was)
		t.Setenv("GOMEMLIMIT", c.env)
		var said bytes.Buffer
		limitMemory(files(c.content), slog.New(slog.NewTextHandler(&said, nil)))
		if got := debug.SetMemoryLimit(-1); got != c.want || !strings.Contains(said.String(), c.says) {
			t.Errorf("%s: limit %d, want %d; the log says %s", c.name, got, c.want, said.String())
		}
	}
}
