package apply

import (
	"fmt"
	"os"
	"strings"

	"github.com/fairlane-dev/fairlane/internal/config"
)

// EnvFile reads a file of lines NAME=value; # begins a line of comment. Its names come before those of env.
// Errors name the line and never what stands there.
func EnvFile(path string, env config.Env) (config.Env, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	vars := map[string]string{}
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || !envName.MatchString(name) {
			return nil, fmt.Errorf("%s:%d: must be NAME=value", path, n)
		}
		if _, twice := vars[name]; twice {
			return nil, fmt.Errorf("%s:%d: %s must stand once", path, n, name)
		}
		vars[name] = value
	}
	return func(name string) (string, bool) {
		if v, ok := vars[name]; ok {
			return v, true
		}
		return env(name)
	}, nil
}
