package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	api "github.com/fairlane-dev/fairlane/client"
	"github.com/fairlane-dev/fairlane/internal/apply"
	"github.com/fairlane-dev/fairlane/internal/delivery"
)

// makeSecrets gives d a secret for each subscription that it would create and that names none: the one of the file
// of --new-secrets, or a new one, which is in that file before this returns. So a run that is killed loses none,
// and the same command goes on with those that it made.
func (a *applyCmd) makeSecrets(ctx context.Context, c *api.Client, set *apply.Set, d *api.Desired) error {
	kept, err := readSecrets(a.newSecrets)
	if err != nil {
		return fmt.Errorf("--new-secrets: %w", err)
	}
	dry := *d
	dry.DryRun = true
	plan, err := c.Apply(ctx, dry)
	if problem := new(api.Problem); errors.As(err, &problem) {
		return located(set, err)
	} else if err != nil {
		return err
	}
	before, unsigned := len(kept), set.Unsigned()
	d.NewSecrets = map[string]string{}
	for _, change := range plan.Changes {
		if name := change.Tenant + "/" + change.Name; change.Kind == "subscription" && change.Act == "create" && unsigned[name] {
			kept[name] = cmp.Or(kept[name], delivery.FormatSecret(delivery.NewSecret()))
			d.NewSecrets[name] = kept[name]
		}
	}
	if len(kept) == before {
		return nil
	}
	if err := writeSecrets(a.newSecrets, kept); err != nil {
		return fmt.Errorf("nothing was changed: --new-secrets: %w", err)
	}
	return nil
}

// kept forgets the secrets that are in the file. Error: one there is not in force, because another call has
// created its subscription meanwhile.
func (a *applyCmd) kept(d *api.Desired, plan *api.Plan) error {
	others := maps.Clone(d.NewSecrets)
	for i := range plan.Changes {
		c := &plan.Changes[i]
		if name := c.Tenant + "/" + c.Name; c.Secret != "" && c.Secret == others[name] {
			c.Secret = ""
			delete(others, name)
		}
	}
	if len(others) == 0 {
		return nil
	}
	return fmt.Errorf("the changes are made, but another call has created %s meanwhile: what %s has there is not its secret; fairlane subscription rotate makes another",
		strings.Join(slices.Sorted(maps.Keys(others)), ", "), a.newSecrets)
}

// readSecrets reads what writeSecrets wrote; a file that does not exist holds none.
func readSecrets(path string) (map[string]string, error) {
	secrets := map[string]string{}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return secrets, nil
	}
	if err != nil {
		return nil, err
	}
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		name, secret, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if _, err := delivery.ParseSecret(secret); !ok || err != nil || !strings.Contains(name, "/") || secrets[name] != "" {
			return nil, fmt.Errorf("%s:%d: must be tenant/name and its secret, each name once", path, n)
		}
		secrets[name] = secret
	}
	return secrets, nil
}

// writeSecrets writes the file anew, whole or not at all: a line each with tenant/name and secret, in their order.
// Nobody but its owner may read it.
func writeSecrets(path string, secrets map[string]string) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		if _, err = fmt.Fprintln(f, name, secrets[name]); err != nil {
			break
		}
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
