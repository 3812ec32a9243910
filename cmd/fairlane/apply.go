package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	api "github.com/fairlane-dev/fairlane/client"
	"github.com/fairlane-dev/fairlane/internal/apply"
	"github.com/fairlane-dev/fairlane/internal/config"
)

// applyCmd is `fairlane apply`.
type applyCmd struct {
	client
	files, envs   []string
	newSecrets    string
	prune, dryRun bool
}

func newApplyCmd() *cobra.Command {
	a := &applyCmd{}
	cmd := &cobra.Command{
		Use:   "apply -f FILE|DIR",
		Short: "Make tiers, tenants and subscriptions what files say: all of it or nothing",
		Long: "Reads tiers, tenants and subscriptions from YAML files, lets the service check all of them against its\n" +
			"rules, and then creates and changes what differs. One error, and nothing changes. Twice changes\n" +
			"nothing the second time. If the service stops in the middle, the same command does the rest: the secrets in\n" +
			"the file of --new-secrets are there before they are in force, and are used again.",
		Example: "  fairlane apply -f platform/ --dry-run\n  fairlane apply -f platform/ --env secrets.env --new-secrets made.txt",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.run(cmd) },
	}
	a.flags(cmd)
	f := cmd.Flags()
	f.StringArrayVarP(&a.files, "file", "f", nil, "a file, or a directory with .yaml and .yml files; may be repeated")
	f.StringArrayVar(&a.envs, "env", nil, "a file of lines NAME=value for ${NAME}, before the environment; may be repeated")
	f.BoolVar(&a.dryRun, "dry-run", false, "show what would change, and change nothing")
	f.BoolVar(&a.prune, "prune", false, "remove named subscriptions of the files' tenants that the files do not have")
	f.StringVar(&a.newSecrets, "new-secrets", "", "make the secrets of new subscriptions that name none, and keep them in this file")
	if err := cmd.MarkFlagRequired("file"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

func (a *applyCmd) run(cmd *cobra.Command) error {
	set, err := a.read()
	if err != nil {
		return err
	}
	c, err := a.api()
	if err != nil {
		return err
	}
	c.HTTP = &http.Client{} // as long as it takes
	d := api.Desired{Prune: a.prune, DryRun: a.dryRun}
	for kind, to := range map[string]*json.RawMessage{apply.Tiers: &d.Tiers, apply.Tenants: &d.Tenants, apply.Subscriptions: &d.Subscriptions} {
		if *to, err = set.JSON(kind); err != nil {
			return err
		}
	}
	if a.newSecrets != "" && !a.dryRun {
		if err := a.makeSecrets(cmd.Context(), c, set, &d); err != nil {
			return err
		}
	}
	plan, err := c.Apply(cmd.Context(), d)
	if err != nil {
		return located(set, err)
	}
	if err := a.kept(&d, &plan); err != nil {
		return err
	}
	return a.print(cmd.OutOrStdout(), plan)
}

func (a *applyCmd) read() (*apply.Set, error) {
	env := config.Env(os.LookupEnv)
	for i := len(a.envs) - 1; i >= 0; i-- {
		var err error
		if env, err = apply.EnvFile(a.envs[i], env); err != nil {
			return nil, fmt.Errorf("--env: %w", err)
		}
	}
	return apply.Read(a.files, env)
}

// located gives what the service refuses its place in the files.
func located(set *apply.Set, err error) error {
	var p *api.Problem
	switch {
	case !errors.As(err, &p):
		return fmt.Errorf("%w; how much was done is not known, and the same command does the rest", err)
	case p.Field == "":
		return err
	}
	all := config.Problems{set.Problem(p.Field, p.Rule)}
	if len(p.Errors) > 0 {
		all = nil
	}
	for _, e := range p.Errors {
		all = append(all, set.Problem(e.Field, e.Rule))
	}
	return fmt.Errorf("nothing was changed:\n%w", all)
}

// print shows a plan. Secrets are not shown, and nothing of a URL behind its host.
func (a *applyCmd) print(w io.Writer, plan api.Plan) error {
	lost := 0
	for i := range plan.Changes {
		if plan.Changes[i].Secret != "" {
			plan.Changes[i].Secret = ""
			lost++
		}
	}
	if a.json {
		return printJSON(w, plan)
	}
	for i := range plan.Changes {
		if _, err := fmt.Fprintln(w, changeText(&plan.Changes[i])); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, summary(&plan))
	if lost > 0 && err == nil {
		_, err = fmt.Fprintf(w, "the service made %d secrets that nobody has seen: fairlane subscription rotate shows a new one, --new-secrets keeps them\n", lost)
	}
	return err
}

func changeText(c *api.Change) string {
	name := c.Tenant + c.Name // one of them, but for a subscription
	if c.Tenant != "" && c.Name != "" {
		name = c.Tenant + "/" + c.Name
	}
	text := map[string]string{"create": "+", "change": "~", "remove": "-"}[c.Act] + " " + c.Kind + " " + name
	for i, f := range c.Fields {
		text += map[bool]string{true: ": ", false: ", "}[i == 0] + fieldText(f)
	}
	return text
}

func fieldText(f api.FieldChange) string {
	if f.From == nil && f.To == nil {
		return f.Field
	}
	return f.Field + " " + valueText(f.Field, f.From) + " -> " + valueText(f.Field, f.To)
}

func valueText(field string, v any) string {
	if s, is := v.(string); is {
		if u, err := url.Parse(s); field == "url" && err == nil {
			return u.Scheme + "://" + u.Host + "/..."
		}
		return cmp.Or(s, `""`)
	}
	if v == nil {
		return "(default)"
	}
	out, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	return strings.ReplaceAll(string(out), `\u003e`, ">")
}

func summary(p *api.Plan) string {
	n := map[string]int{}
	for _, c := range p.Changes {
		n[c.Act]++
	}
	text := fmt.Sprintf("%d created, %d changed, %d removed, %d unchanged", n["create"], n["change"], n["remove"], p.Unchanged)
	if p.DryRun {
		text = fmt.Sprintf("%d to create, %d to change, %d to remove, %d unchanged; nothing was done", n["create"], n["change"], n["remove"], p.Unchanged)
	}
	return text
}
