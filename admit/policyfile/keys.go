package policyfile

import (
	"fmt"
	"os"
	"strings"

	"github.com/fairlane-dev/fairlane/admit/identity"
)

// LoadKeys reads a file of API keys, one a line: the key's SHA-256 in hexadecimal,
// the tenant, and the tenant's user if there is one. Empty lines and those that
// begin with # are left out. Errors name the line and never what stands in it.
func LoadKeys(path string) (*identity.Keys, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	var entries []identity.Entry
	var lines []int
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0][0] == '#':
			continue
		case len(words) < 2 || len(words) > 3:
			return nil, fmt.Errorf("%s:%d: must be: SHA-256, tenant, and a user or none", path, n)
		}
		e := identity.Entry{SHA256: words[0], Identity: identity.Identity{Tenant: words[1]}}
		if len(words) == 3 {
			e.User = words[2]
		}
		entries, lines = append(entries, e), append(lines, n)
	}
	keys := &identity.Keys{}
	if at, err := keys.Set(entries); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", path, lines[at], err)
	}
	return keys, nil
}
